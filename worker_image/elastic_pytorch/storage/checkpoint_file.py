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
    """Reads the newest whole checkpoint of a folder; damaged ones are skipped, with the reason in the log.

    Args:
        folder: of the checkpoints.
        beyond: only larger versions are considered.

    Raises:
        OSError: the folder, or a file in it that may be whole, cannot be read.
        MemoryError: there is no room for a whole state.
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
                gone.add(path)  # another group may just have replaced it by a newer one: the folder is listed once more
                continue
            logger.warning("checkpoint %s is skipped: %s", path, error)
            skipped.add(path)
            continue
        return Loaded(version, tree, path)


def load(path: str | os.PathLike[str]) -> tuple[StateVersion, Any]:
    """Reads a checkpoint; its tensors are on the CPU. Each byte is read once.

    Raises:
        ValueError: it is damaged, or not a checkpoint; the message says which.
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
        except Exception as error:  # bytes that are not a state may mean anything, even a tensor larger than the memory
            for _ in payload_of(file):  # raises another error if the file is damaged
                pass
            if isinstance(error, MemoryError) or "allocate memory" in str(error):
                raise MemoryError(f"no room for the state in {path}: {error}") from None
            raise ValueError(f"no state: {error}") from None
        if _checksum(file.fileno(), pieces, length) != checksum:
            raise ValueError("corrupt: the checksum is wrong")
        return version, tree


def _checksum(fd: int, pieces: list[tuple[int, memoryview]], length: int) -> int:
    """Returns the checksum of header and payload, computed from what has been read and from the gaps between."""
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
