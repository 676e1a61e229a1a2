"""The licence texts that every Debian system carries, cut into samples."""

from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset

CONTEXT = 64


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Windows of a text, each with the window one character on, which the model is to predict."""

    def __init__(self, text: Tensor) -> None:
        self.windows = text.unfold(0, CONTEXT + 1, CONTEXT // 2)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        window = self.windows[index]
        return window[:-1], window[1:]


def load_text(
    folder: Path = Path("/usr/share/common-licenses"),
) -> tuple[Dataset[tuple[Tensor, Tensor]], Dataset[tuple[Tensor, Tensor]], int]:
    """Return what to train on, what to validate with, and the number of different characters."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.is_symlink())
    characters = torch.frombuffer(
        bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8
    )
    vocabulary, text = torch.unique(characters, return_inverse=True)
    held_out = len(text) // 10
    return Text(text[:-held_out]), Subset(Text(text[-held_out:]), range(256)), len(vocabulary)
