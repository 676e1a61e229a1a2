"""Checkpoints that many ranks write together: each is a folder that gets its name when all of it is on the disk.

Standard library only. They may lie beside checkpoint files: the names differ.
"""

import os
import re
import secrets
import shutil
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from elastic_pytorch.log import logger
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import refuse_claimed
from elastic_pytorch.storage.local_folder import LocalFolder, sync_folder

READ_BYTES = 4 << 20

_NAME = re.compile(r"checkpoint-g(\d{6,19})-s(\d{9,19})\.sharded")
_PARTIAL = re.compile(r"\.partial-sharded-g(\d{6,19})-s\d{9,19}-[0-9a-f]{16}")


class ShardFile(NamedTuple):
    """A file of a checkpoint, as it was written."""

    name: str
    size: int
    checksum: int


def path_of(folder: Path, version: StateVersion) -> Path:
    """Returns the path of a checkpoint that is whole."""
    return folder / f"checkpoint-g{version.generation:06}-s{version.step:09}.sharded"


def sharded_checkpoints(folder: Path) -> list[tuple[StateVersion, Path]]:
    """Returns the checkpoints, the newest first, without checking their files.

    Raises:
        OSError: the folder cannot be read. A missing folder is not an error: it has no checkpoints.
    """
    found = ((_NAME.fullmatch(path.name), path) for path in _paths(folder))
    return sorted(((StateVersion(int(match[1]), int(match[2])), path) for match, path in found if match), reverse=True)


def check_claim(folder: Path, version: StateVersion) -> None:
    """Makes sure that no newer group has claimed the folder.

    Raises:
        Superseded: one has.
        OSError: the folder cannot be read.
    """
    place = LocalFolder(folder)
    refuse_claimed(place, place.names(), version)


def partial_path(folder: Path, version: StateVersion, token: int) -> Path:
    """Returns the path of a checkpoint while it is written; the token is unique to this write."""
    return folder / f".partial-sharded-g{version.generation:06}-s{version.step:09}-{token:016x}"


def new_token() -> int:
    """Returns a number that no other write has, at least 1."""
    return 1 + secrets.randbits(62)


def publish(partial: Path, folder: Path, version: StateVersion, keep: int) -> None:
    """Gives a checkpoint its name, and deletes older ones.

    Args:
        partial: the checkpoint, whose files are synced to the disk.
        folder: of the checkpoints.
        version: of the state.
        keep: how many to leave there, including this one; those of a larger version do not count and stay.

    Raises:
        Superseded: a larger generation has claimed the folder.
        OSError: it could not be done; nothing has been deleted.
    """
    sync_folder(partial)
    check_claim(folder, version)
    path = path_of(folder, version)
    if path.exists():
        _delete(path)  # of the same generation and step, hence damaged: that was the reason to write it once more
    partial.rename(path)
    sync_folder(folder)
    older = [old for other, old in sharded_checkpoints(folder) if other < version]
    for old in older[keep - 1 :]:
        _delete(old)
    for left_behind in _paths(folder):
        match = _PARTIAL.fullmatch(left_behind.name)
        if match and int(match[1]) < version.generation:
            _delete(left_behind)


def describe_files(folder: Path, names: Iterable[str]) -> list[ShardFile]:
    """Returns what is needed to find out later whether files of a folder are whole. Their names may lead into sub-folders.

    Raises:
        OSError: one cannot be read.
    """
    return [ShardFile(name, (folder / name).stat().st_size, _checksum(folder / name)) for name in names]


def sync_files(folder: Path, names: Iterable[str]) -> None:
    """Syncs files of a folder to the disk, for libraries that do not do it themselves.

    Raises:
        OSError: it could not be done.
    """
    for name in names:
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())


def check_sizes(folder: Path, files: Iterable[ShardFile]) -> None:
    """Makes sure that files have the sizes with which they were written.

    Raises:
        ValueError: one has another size; the message says which.
        OSError: one cannot be read.
    """
    for name, size, _ in files:
        if (seen := (folder / name).stat().st_size) != size:
            raise ValueError(f"torn: {name} has {seen} bytes, not {size}")


def check_checksums(folder: Path, files: Iterable[ShardFile]) -> None:
    """Makes sure that files hold what was written.

    Raises:
        ValueError: one does not; the message says which.
        OSError: one cannot be read.
    """
    for name, _, checksum in files:
        if _checksum(folder / name) != checksum:
            raise ValueError(f"corrupt: the checksum of {name} is wrong")


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _paths(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _delete(path: Path) -> None:
    """Deletes a checkpoint. It loses its name first, so that no reader ever finds half of it."""
    try:
        doomed = path.with_name(f".partial-sharded-g{0:06}-s{0:09}-{new_token():016x}")
        path.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        logger.warning("cannot delete %s: %s", path, error.strerror)
