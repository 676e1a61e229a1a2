"""The text, cut into samples whose order depends on seed and epoch, not on the world size."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset, DistributedSampler


def load_text(folder: Path) -> tuple[Tensor, Tensor, int]:
    """Read a folder's texts as numbers: to train on, to hold out, and the number of characters."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.is_symlink())
    text = torch.frombuffer(
        bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8
    )
    vocabulary, numbers = torch.unique(text, return_inverse=True)
    held_out = len(numbers) // 10
    return numbers[:-held_out], numbers[-held_out:], len(vocabulary)


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Windows of a text, each with the window one character on, which the model is to predict."""

    def __init__(self, text: Tensor, context: int, stride: int) -> None:
        self.windows = text.unfold(0, context + 1, stride)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        window = self.windows[index]
        return window[:-1], window[1:]


class ResumableSampler(DistributedSampler[tuple[Tensor, Tensor]]):
    """A DistributedSampler that can start in the middle of an epoch, after `position` samples.

    Seed and epoch alone decide the order of an epoch's samples, and the ranks take them in turn. So
    a position counted in samples of the whole group means the same in a group of another size (to
    within one sample per worker).
    """

    position = 0

    def __iter__(self) -> Iterator[int]:  # type: ignore[override] # torch annotates its indices as samples
        return itertools.islice(super().__iter__(), self.position // self.num_replicas, None)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self.num_samples - self.position // self.num_replicas
