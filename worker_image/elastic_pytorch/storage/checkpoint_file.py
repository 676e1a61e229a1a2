"""Reads checkpoint files into tensors."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from elastic_pytorch.log import logger
from elastic_pytorch.object_url import Location, ObjectUrl, location_of
from elastic_pytorch.state_format.payload import read_payload
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import Checkpoint, Folder, by_name
from elastic_pytorch.storage.checkpoint_format import HEADER, read_frame, version_of
from elastic_pytorch.storage.places import place_at

Content = TypeVar("Content")
# Of a checkpoint that is skipped. Other errors are the storage's, and no reason to continue from an
# older checkpoint.
DAMAGE = (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError)


class Loaded(NamedTuple):
    version: StateVersion
    tree: Any
    path: Location


def load_newest(folder: Folder, beyond: StateVersion) -> Loaded | None:
    """Reads the newest whole checkpoint beyond a version; the log has why others are skipped.

    A file that may be whole and cannot be read is an OSError.
    """
    return first_whole(
        lambda: [found for found in by_name(folder) if found.version > beyond],
        lambda version, path: Loaded(version, load_version(path, version), path),
        {},
    )


def first_whole(
    look: Callable[[], Sequence[Checkpoint]],
    read: Callable[[StateVersion, Location], Content],
    problems: dict[Location, Exception],
) -> Content | None:
    """Returns the content of the first checkpoint that is whole; None: none is.

    `look` lists checkpoints, again if one is gone, as a newer one may have replaced it. `read`
    returns a checkpoint's content, or raises one of `DAMAGE`, which `problems` gets.
    """
    gone: set[Location] = set()
    while (found := next((each for each in look() if each.path not in problems), None)) is not None:
        version, path = found
        try:
            return read(version, path)
        except DAMAGE as error:
            if path not in gone and (isinstance(error, FileNotFoundError) or is_gone(path)):
                gone.add(path)
                continue
            logger.warning("checkpoint %s is skipped: %s", path, error)
            problems[path] = error
    return None


def is_gone(location: Location) -> bool:
    """Whether a file does not exist, or a folder of a file system."""
    if isinstance(location, Path):
        return not location.exists()
    named = version_of(location.name) is not None
    return named and location.name not in place_at(location.parent).names()


def load_version(path: Location, version: StateVersion) -> Any:
    held, tree = load(path)
    if held != version:
        raise ValueError(f"foreign: it is named after {tuple(version)}, and holds {tuple(held)}")
    return tree


def load(path: str | os.PathLike[str] | ObjectUrl) -> tuple[StateVersion, Any]:
    """Reads a checkpoint into tensors on the CPU. Each byte is read once."""
    location = location_of(path)
    pieces: list[tuple[int, memoryview]] = []
    problem: str | None = None
    with closing(place_at(location.parent).open(location.name)) as file:
        version, length, checksum = read_frame(file)

        def read_into(offset: int, buffer: memoryview) -> None:
            file.read_into(HEADER.size + offset, buffer)
            pieces.append((HEADER.size + offset, buffer))

        try:
            tree = read_payload(read_into, length)
        except OSError:
            raise
        except Exception as error:  # such bytes may mean anything, even a tensor larger than memory
            problem = str(error)
            full = isinstance(error, MemoryError) or "allocate memory" in problem
        if file.checksum(HEADER.size + length, pieces) != checksum:
            raise ValueError("corrupt: the checksum is wrong")
    if problem is not None:
        if full:
            raise MemoryError(f"no room for the state in {location}: {problem}")
        raise ValueError(f"no state: {problem}")
    return version, tree
