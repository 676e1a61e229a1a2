"""Reading checkpoint files into tensors."""

import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from elastic_pytorch.log import logger
from elastic_pytorch.memory.snapshot import read_exactly
from elastic_pytorch.state_format.payload import read_payload
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import HEADER, by_name, payload_of, read_frame


class Loaded(NamedTuple):
    """A state from a file."""

    version: StateVersion
    tree: Any
    path: Path


def load_newest(folder: str | os.PathLike[str], beyond: StateVersion) -> Loaded | None:
    """Reads the newest checkpoint of a folder that is whole; one that is not is skipped with a line in the log that says why.

    Args:
        folder: of the checkpoints.
        beyond: only those of a larger version are looked at.

    Raises:
        OSError: the folder, or a file in it that may be whole, cannot be read.
        MemoryError: there is no room for a state that is whole.
    """
    skipped: set[Path] = set()
    gone: set[Path] = set()
    while True:
        left = [found for found in by_name(folder) if found.version > beyond and found.path not in skipped]
        if not left:
            return None
        version, path = left[0]
        try:
            held, tree = load(path)
            if held != version:
                raise ValueError(f"foreign: it is named after {tuple(version)}, and holds {tuple(held)}")
        except (ValueError, FileNotFoundError, IsADirectoryError) as error:
            if isinstance(error, FileNotFoundError) and path not in gone:
                gone.add(path)  # another group may just have put a newer one in its place: the folder is listed once more
                continue
            logger.warning("checkpoint %s is skipped: %s", path, error)
            skipped.add(path)
            continue
        return Loaded(version, tree, path)


def load(path: str | os.PathLike[str]) -> tuple[StateVersion, Any]:
    """Reads a checkpoint; its tensors are on the CPU. Each byte is read once.

    Raises:
        ValueError: it is not whole, or no checkpoint; the message says which.
        OSError: it cannot be read.
        MemoryError: there is no room for it.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - a str too
        version, length, checksum = read_frame(file)
        pieces: list[tuple[int, memoryview]] = []

        def read_into(offset: int, buffer: memoryview) -> None:
            read_exactly(file.fileno(), HEADER.size + offset, buffer)
            pieces.append((offset, buffer))

        try:
            tree = read_payload(read_into, length)
        except OSError:
            raise
        except Exception as error:  # bytes that are no state may be anything, a tensor beyond all memory too
            for _ in payload_of(file):  # raises another error if that is because the file is damaged
                pass
            if isinstance(error, MemoryError) or "allocate memory" in str(error):
                raise MemoryError(f"no room for the state in {path}: {error}") from None
            raise ValueError(f"no state: {error}") from None
        if _checksum(file.fileno(), pieces, length) != checksum:
            raise ValueError("corrupt: the checksum is wrong")
        return version, tree


def _checksum(fd: int, pieces: list[tuple[int, memoryview]], length: int) -> int:
    """The checksum of header and payload, made of what has been read, and of what lies between."""
    seen = zlib.crc32(_read(fd, 0, HEADER.size))
    at = 0
    for offset, buffer in [*sorted(pieces, key=lambda piece: piece[0]), (length, memoryview(b""))]:
        seen = zlib.crc32(_read(fd, HEADER.size + at, offset - at), seen)
        seen = zlib.crc32(buffer, seen)
        at = offset + len(buffer)
    return seen


def _read(fd: int, offset: int, length: int) -> bytearray:
    data = bytearray(length)
    read_exactly(fd, offset, memoryview(data))
    return data
