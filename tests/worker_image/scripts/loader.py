"""A data loader with workers, started both ways, whose random numbers must all differ."""

import os

import numpy
import torch
from events import event
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> int:
        return i * i


if __name__ == "__main__":
    for method in ("fork", "spawn"):
        batches = DataLoader(Squares(), batch_size=4, num_workers=1, multiprocessing_context=method)
        event("batches", method=method, sums=[int(batch.sum()) for batch in batches])
    event(
        "random",
        numpy=float(numpy.random.random()),
        seed=torch.initial_seed(),
        threads=torch.get_num_threads(),
        omp=os.environ.get("OMP_NUM_THREADS"),
    )
