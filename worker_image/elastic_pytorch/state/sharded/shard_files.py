"""A rank's shards in files of torch.distributed.checkpoint, in a folder or object storage.

Torch's own writer and reader open files by their attribute `fs`, as torch's `FsspecWriter` does.
"""

import io
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import (
    FileSystemBase,
    FileSystemReader,
    FileSystemWriter,
)

from elastic_pytorch.memory.pod_memory import workers_of_pod
from elastic_pytorch.memory.slot_memory import room
from elastic_pytorch.object_url import Location, ObjectUrl
from elastic_pytorch.storage.object_store import ObjectStore
from elastic_pytorch.storage.object_streams import BUFFER_BYTES, ObjectRanges
from elastic_pytorch.storage.sharded_folder import (
    ShardFile,
    check_checksums,
    describe_files,
    read_checked,
)

UNNAMED = ".tmp"  # the suffix of torch's metadata file until it is whole
Held = Mapping[str, bytearray]  # the content of objects that have been read, by name

_OF_RANK = re.compile(r"__(\d+)_\d+\.distcp")


def shard_writer(location: Location, shard_bytes: int) -> FileSystemWriter:
    if not isinstance(location, ObjectUrl):
        return FileSystemWriter(location)
    writer = FileSystemWriter(str(location), sync_files=False)
    files: Any = ObjectFiles(ObjectStore(location), shard_bytes)
    writer.fs, writer.path = files, ""
    return writer


def written_by(writer: Any, location: Location, rank: int) -> list[ShardFile]:
    if isinstance(location, Path):
        own = (f"__{rank}_*", *([".metadata"] if rank == 0 else []))
        names = [path.name for pattern in own for path in location.glob(pattern)]
        return describe_files(location, names)
    files: ObjectFiles = writer.fs
    return files.written


def shard_reader(location: Location, held: Held | None = None) -> FileSystemReader:
    reader = FileSystemReader(str(location))
    if isinstance(location, ObjectUrl):
        files: Any = ObjectFiles(ObjectStore(location), 0, held)
        reader.fs, reader.path = files, ""
    return reader


def checked_by(files: Iterable[ShardFile], rank: int, world_size: int) -> list[ShardFile]:
    """Returns the files that a rank checks, so that one rank checks each.

    In a group of the size of the writers', a rank checks the files that it is going to load.
    """
    found = []
    for number, file in enumerate(files):
        match = _OF_RANK.fullmatch(file.name)
        if (int(match[1]) if match else number) % world_size == rank:
            found.append(file)
    return found


def check_files(location: Location, files: Iterable[ShardFile]) -> Held:
    """Checks files, and returns the content of objects, as far as the container has room.

    The kernel caches the files of a folder by itself.
    """
    held: dict[str, bytearray] = {}
    for file in files:
        left = room()  # less what is held
        if isinstance(location, ObjectUrl) and (
            left is None or file.size * workers_of_pod() <= left
        ):
            held[file.name] = read_checked(location, file)
        else:
            check_checksums(location, [file])
    return held


class ObjectFiles(FileSystemBase):
    def __init__(self, store: ObjectStore, shard_bytes: int, held: Held | None = None) -> None:
        self.written: list[ShardFile] = []
        self._held = held or {}
        self._store = store
        self._shard_bytes = shard_bytes

    @contextmanager
    def create_stream(self, path: str | PathLike[str], mode: str) -> Generator[Any, None, None]:
        # An object appears when it is whole, so it needs no other name before.
        name = str(path).removesuffix(UNNAMED)
        if mode == "rb":
            with (
                _held_reader(self._held[name])
                if name in self._held
                else self._store.reader(name) as reader
            ):
                yield reader
            return
        writer = self._store.writer(name, self._shard_bytes)
        yield writer
        writer.finish()
        self.written.append(ShardFile(name, writer.size, writer.checksum))

    def concat_path(self, path: str | PathLike[str], suffix: str) -> str:
        return f"{path}/{suffix}".lstrip("/")

    def init_path(self, path: str | PathLike[str]) -> str:
        return str(path)

    def rename(self, path: str | PathLike[str], new_path: str | PathLike[str]) -> None:
        """Does nothing: the object has its name."""

    def mkdir(self, path: str | PathLike[str]) -> None:
        """Does nothing: a prefix need not be made."""

    def exists(self, path: str | PathLike[str]) -> bool:
        """Returns False: there is no checkpoint to be overwritten."""
        return False

    def rm_file(self, path: str | PathLike[str]) -> None:
        """Does nothing: torch deletes only what `exists`."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | PathLike[str]) -> bool:
        """Returns True: the URL has been checked."""
        return True


def _held_reader(content: bytearray) -> io.BufferedReader:
    view = memoryview(content)
    return io.BufferedReader(
        ObjectRanges(len(content), lambda start, end: view[start:end]), BUFFER_BYTES
    )
