"""Reading a checkpoint file into tensors."""

import os
from typing import Any

from elastic_pytorch.checkpoint_folder import HEADER, payload_of, read_frame
from elastic_pytorch.payload import read_payload
from elastic_pytorch.snapshot import read_exactly
from elastic_pytorch.stamp import Stamp


def load(path: str | os.PathLike[str]) -> tuple[Stamp, Any]:
    """Reads a checkpoint; its tensors are on the CPU.

    Raises:
        ValueError: it is not whole, or no checkpoint; the message says which.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - a str too
        for _ in payload_of(file):
            pass
        stamp, length, _ = read_frame(file)

        def read_into(offset: int, buffer: memoryview) -> None:
            read_exactly(file.fileno(), HEADER.size + offset, buffer)

        return stamp, read_payload(read_into, length)
