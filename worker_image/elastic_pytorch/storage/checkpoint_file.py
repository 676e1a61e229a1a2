"""Reading checkpoint files into tensors."""

import os
from contextlib import closing
from typing import Any, NamedTuple

from elastic_pytorch.log import logger
from elastic_pytorch.object_url import Location, ObjectUrl, location_of
from elastic_pytorch.state_format.payload import read_payload
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import Folder, by_name
from elastic_pytorch.storage.checkpoint_format import HEADER, StoredFile, payload_of, read_frame
from elastic_pytorch.storage.places import Place, place_at


class Loaded(NamedTuple):
    version: StateVersion
    tree: Any
    path: Location


def load_newest(folder: Folder, beyond: StateVersion) -> Loaded | None:
    """Reads the newest whole checkpoint of a folder beyond a version; damaged ones are skipped, with the reason in the log.

    Raises:
        OSError: the folder, or a file in it that may be whole, cannot be read.
        MemoryError: there is no room for a whole state.
    """
    place = place_at(folder)
    skipped: set[Location] = set()
    gone: set[Location] = set()
    while True:
        left = [found for found in by_name(place) if found.version > beyond and found.path not in skipped]
        if not left:
            return None
        version, path = left[0]
        try:
            held, tree = _load(place, path.name)
            if held != version:
                raise ValueError(f"foreign: it is named after {tuple(version)}, and holds {tuple(held)}")
        except (ValueError, FileNotFoundError, IsADirectoryError) as error:
            if isinstance(error, FileNotFoundError) and path not in gone:
                gone.add(path)  # another group may just have replaced it by a newer one: the folder is listed again
                continue
            logger.warning("checkpoint %s is skipped: %s", path, error)
            skipped.add(path)
            continue
        return Loaded(version, tree, path)


def load(path: str | os.PathLike[str] | ObjectUrl) -> tuple[StateVersion, Any]:
    """Reads a checkpoint; its tensors are on the CPU. Each byte is read once.

    Raises:
        ValueError: it is damaged, or not a checkpoint; the message says which.
        OSError: it cannot be read.
        MemoryError: there is no room for it.
    """
    location = location_of(path)
    return _load(place_at(location.parent), location.name)


def _load(place: Place, name: str) -> tuple[StateVersion, Any]:
    with closing(place.open(name)) as file:
        return _read(file, str(place.location / name))


def _read(file: StoredFile, where: str) -> tuple[StateVersion, Any]:
    version, length, checksum = read_frame(file)
    pieces: list[tuple[int, memoryview]] = []

    def read_into(offset: int, buffer: memoryview) -> None:
        file.read_into(HEADER.size + offset, buffer)
        pieces.append((HEADER.size + offset, buffer))

    try:
        tree = read_payload(read_into, length)
    except OSError:
        raise
    except Exception as error:  # bytes that are not a state may mean anything, even a tensor larger than the memory
        for _ in payload_of(file):  # raises another error if the file is damaged
            pass
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            raise MemoryError(f"no room for the state in {where}: {error}") from None
        raise ValueError(f"no state: {error}") from None
    if file.checksum(HEADER.size + length, pieces) != checksum:
        raise ValueError("corrupt: the checksum is wrong")
    return version, tree
