"""The last rank of the group hangs in a way of its own, and the others wait for it in a collective.

The first argument says in what, or in what the others wait while it sleeps: `hang` and `step` have
the words.
"""

import os
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from events import event
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WAY = sys.argv[1]


class Samples(Dataset[torch.Tensor]):
    """Its first sample never comes."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(600)
        return torch.ones(1)


def fifo() -> str:
    """A file that nothing is ever written to, as on a dead file system."""
    path = Path(tempfile.mkdtemp()) / "fifo"
    os.mkfifo(path)
    if WAY != "checkpoint":  # hangs when it is opened
        os.open(path, os.O_RDWR)
    return str(path)


def hang() -> None:
    if WAY in ("loader", "backward"):
        next(iter(DataLoader(Samples())))
    elif WAY == "loader_workers":
        next(iter(DataLoader(Samples(), num_workers=1)))
    elif WAY == "barrier":
        dist.barrier()
    elif WAY == "send":
        dist.recv(torch.ones(1), 0)
    elif WAY == "lock":
        lock = threading.Lock()
        with lock, lock:
            pass
    elif WAY == "event":
        threading.Event().wait()
    elif WAY == "file":
        Path(fifo()).read_bytes()
    elif WAY == "bare_file":
        with open(fifo()) as file:  # noqa: PTH123 - as scripts do it
            file.read()
    elif WAY == "checkpoint":
        torch.load(fifo())
    else:
        time.sleep(600)


def step() -> None:
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    if WAY == "backward":
        loss = model(torch.ones(1)).sum()
        if last:
            hang()
        loss.backward()
    elif last:
        hang()
    elif WAY == "objects":
        dist.all_gather_object([None] * dist.get_world_size(), 1)
    elif WAY == "broadcast":
        dist.broadcast(torch.ones(1), dist.get_world_size() - 1)
    elif WAY == "forward":
        DistributedDataParallel(torch.nn.BatchNorm1d(1))(torch.ones(2, 1))
    elif WAY == "functional":
        from torch.distributed import _functional_collectives as functional

        print(functional.all_reduce(torch.ones(1), "sum", dist.group.WORLD))
    else:
        dist.all_reduce(torch.ones(1))


dist.init_process_group("gloo", timeout=timedelta(minutes=10))
last = dist.get_rank() == dist.get_world_size() - 1
event("hangs")
step()
