"""Checkpoints of many ranks: each is a folder or a prefix, with a file per rank and their list.

They may be beside checkpoint files, whose names differ. Standard library only.
"""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from elastic_pytorch.log import logger
from elastic_pytorch.object_url import Location, ObjectUrl
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import by_name, refuse_claimed
from elastic_pytorch.storage.checkpoint_format import SHARDED, name_of, version_of
from elastic_pytorch.storage.local_folder import sync_folder
from elastic_pytorch.storage.places import Place, place_at
from elastic_pytorch.storage.retention import Keep, surplus

_PARTIAL = re.compile(r"\.partial-sharded-g(\d{6,18})-s(\d{9,18})-[0-9a-f]{16}")


class ShardFile(NamedTuple):
    name: str
    size: int
    checksum: int


def files_of(content: dict[str, Any]) -> list[ShardFile]:
    """Returns what a checkpoint's own file lists."""
    return [ShardFile(*file) for file in content["files"]]


def new_token() -> int:
    return 1 + secrets.randbits(62)


class FolderDrafts:
    """Where a checkpoint is written, and how readers find it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, version: StateVersion) -> int:
        """Returns the token of a write. Rank 0 calls it before any rank writes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        refuse_claimed(self._folder, version)
        token = new_token()
        self.location(version, token).mkdir()
        return token

    def location(self, version: StateVersion, token: int) -> Path:
        return self._folder / _partial_name(version, token)

    def publish(
        self, version: StateVersion, token: int, keep: Keep, commit: Callable[[], object]
    ) -> None:
        """Makes a checkpoint appear, and deletes older ones.

        Rank 0 calls it when all other files are safe in the storage. `commit` writes the
        checkpoint's own file, which lists the others.
        """
        partial, path = self.location(version, token), self._folder / name_of(version, SHARDED)
        commit()
        sync_folder(partial)
        refuse_claimed(self._folder, version)
        if path.exists():
            _delete(path)  # of the same generation and step, so it is damaged
        partial.rename(path)
        sync_folder(self._folder)
        versions = (other for other, _ in by_name(self._folder, SHARDED))
        for other in surplus(versions, version, keep):
            _delete(self._folder / name_of(other, SHARDED))
        for left_behind in self._folder.iterdir():
            match = _PARTIAL.fullmatch(left_behind.name)
            if match and int(match[1]) < version.generation:
                _delete(left_behind)

    def discard(self, version: StateVersion, token: int) -> None:
        shutil.rmtree(self.location(version, token), ignore_errors=True)


# Checkpoints in object storage that this process has seen whole, so that each is listed once.
_known_whole: set[Location] = set()


class ObjectDrafts:
    """A checkpoint appears by its own file, which comes last: objects cannot be renamed."""

    def __init__(self, folder: ObjectUrl) -> None:
        self._folder = folder

    def begin(self, version: StateVersion) -> int:
        refuse_claimed(self._folder, version)
        path = self._folder / name_of(version, SHARDED)
        _known_whole.discard(path)
        if by_name(path):
            _delete_objects(path)  # of the same generation and step, so it is damaged
        return new_token()

    def location(self, version: StateVersion, token: int) -> ObjectUrl:
        del token  # a generation's groups write one after the other
        return self._folder / name_of(version, SHARDED)

    def publish(
        self, version: StateVersion, token: int, keep: Keep, commit: Callable[[], object]
    ) -> None:
        refuse_claimed(self._folder, version)
        commit()
        refuse_claimed(self._folder, version)
        _known_whole.add(self.location(version, token))
        try:
            self._delete_older(version, keep)
        except OSError as error:  # the checkpoint is there
            logger.warning("cannot delete older checkpoints in %s: %s", self._folder, error)

    def _delete_older(self, version: StateVersion, keep: Keep) -> None:
        found = by_name(self._folder, SHARDED)
        older = {other: path for other, path in found if other < version}
        whole = {other for other, path in older.items() if path in _known_whole or by_name(path)}
        _known_whole.update(older[other] for other in whole)
        doomed = surplus(whole, version, keep)
        for other, path in sorted(older.items()):
            if other in doomed or other not in whole:  # surplus, or incomplete
                _known_whole.discard(path)
                _delete_objects(path)

    def discard(self, version: StateVersion, token: int) -> None:
        path = self.location(version, token)
        if path in _known_whole:  # it has appeared, and older ones may be gone
            return
        try:
            _delete_objects(path)
        except OSError as error:
            logger.warning("cannot delete what was written of step %d: %s", version.step, error)


def drafts_in(folder: Location) -> FolderDrafts | ObjectDrafts:
    return ObjectDrafts(folder) if isinstance(folder, ObjectUrl) else FolderDrafts(folder)


def describe_files(folder: Location, names: Iterable[str]) -> list[ShardFile]:
    """Names may lead into sub-folders."""
    place = place_at(folder)
    return [ShardFile(name, *_size_and_checksum(place, name)) for name in names]


def sync_files(folder: Path, names: Iterable[str]) -> None:
    """For libraries that do not sync themselves."""
    for name in names:
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())


def check_sizes(folder: Location, files: Iterable[ShardFile]) -> None:
    seen: dict[str, dict[str, int]] = {}
    for name, size, _ in files:
        parent, _, last = name.rpartition("/")
        if parent not in seen:
            seen[parent] = place_at(folder / parent).sizes()
        if last not in seen[parent]:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{folder}/{name}")
        if seen[parent][last] != size:
            raise ValueError(f"torn: {name} has {seen[parent][last]} bytes, not {size}")


def check_checksums(folder: Location, files: Iterable[ShardFile]) -> None:
    place = place_at(folder)
    for name, _, checksum in files:
        if _size_and_checksum(place, name)[1] != checksum:
            raise ValueError(f"corrupt: the checksum of {name} is wrong")


def read_checked(folder: Location, file: ShardFile) -> bytearray:
    content = bytearray(file.size)
    with closing(place_at(folder).open(file.name)) as stored:
        stored.read_into(0, memoryview(content))
        if stored.checksum(file.size, [(0, memoryview(content))]) != file.checksum:
            raise ValueError(f"corrupt: the checksum of {file.name} is wrong")
    return content


def _partial_name(version: StateVersion, token: int) -> str:
    return f".partial-sharded-g{version.generation:06}-s{version.step:09}-{token:016x}"


def _size_and_checksum(place: Place, name: str) -> tuple[int, int]:
    with closing(place.open(name)) as file:
        return file.size, file.checksum(file.size, [])


def _delete(path: Path) -> None:
    """The checkpoint loses its name first, so that no reader finds half of it."""
    try:
        doomed = path.with_name(_partial_name(StateVersion(0, 0), new_token()))
        path.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        logger.warning("cannot delete %s: %s", path, error.strerror)


def _delete_objects(path: Location) -> None:
    """The checkpoint's own file goes first, so that no reader finds half of it."""
    place = place_at(path)
    names = place.names()
    place.delete([name for name in names if version_of(name) is not None])
    place.delete([name for name in names if version_of(name) is None])
    for stage in place.folders():
        inner = place_at(path / stage)
        inner.delete(inner.names())
