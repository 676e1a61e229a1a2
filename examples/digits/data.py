"""The digits: 1797 scans of 8 x 8 pixels with 17 levels of grey, written by people."""

import gzip
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

FILE = Path(__file__).with_name("digits.csv.gz")
HELD_OUT = 360


class Digits(Dataset[tuple[Tensor, Tensor]]):
    """Images between 0 and 1, each with the digit that it shows.

    Args:
        held_out: the last 360, which training never sees.
    """

    def __init__(self, *, held_out: bool) -> None:
        with gzip.open(FILE, "rt") as file:
            rows = torch.tensor([[int(number) for number in line.split(",")] for line in file])
        rows = rows[-HELD_OUT:] if held_out else rows[:-HELD_OUT]
        self.images = rows[:, :-1].reshape(-1, 1, 8, 8) / 16
        self.labels = rows[:, -1]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]
