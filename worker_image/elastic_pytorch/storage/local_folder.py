"""Checkpoints in a folder: a file gets its name when it is on the disk. Standard library only."""

import contextlib
import errno
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from elastic_pytorch.log import logger
from elastic_pytorch.storage.checkpoint_format import READ_BYTES, CannotClaim, Chunk

STALE_SECONDS = 3600.0
# The errors of file systems that cannot sync a folder. Data is synced before, and a failing disk
# returns other errors.
CANNOT_SYNC = frozenset(
    {
        errno.EINVAL,
        errno.ENOTSUP,
        errno.EBADF,
        errno.EROFS,
        errno.ENOSYS,
        errno.EACCES,
        errno.EPERM,
        errno.EISDIR,
    }
)
# The errors of file systems that cannot rename, such as mounted buckets.
CANNOT_RENAME = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.EPERM})

_PARTIAL = re.compile(r"\.partial-(?:\.claim-)?g(\d{6,18})(?:-s\d{9,18})?-[0-9a-f]{16}")


class LocalFolder:
    def __init__(self, path: Path) -> None:
        self.location = path
        self._written_at = 0.0  # by the file system's clock: this machine's may be wrong

    def names(self) -> list[str]:
        try:
            return os.listdir(self.location)  # noqa: PTH208 - names are all that is wanted
        except FileNotFoundError:
            return []

    def sizes(self) -> dict[str, int]:
        found = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self.location) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # it has just been deleted
                    if entry.is_file():
                        found[entry.name] = entry.stat().st_size
        return found

    def folders(self) -> list[str]:
        if not self.location.is_dir():
            return []
        return [path.name for path in self.location.iterdir() if path.is_dir()]

    def put(
        self, name: str, chunks: Iterable[Chunk], size: int | None, check: Callable[[], object]
    ) -> None:
        del size
        self.location.mkdir(parents=True, exist_ok=True)
        stem = name.removeprefix("checkpoint-").removesuffix(".elastic")
        partial = self.location / f".partial-{stem}-{os.urandom(8).hex()}"
        try:
            self._written_at = _write_file(partial, chunks)
            check()
            self.rename(partial, name)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        sync_folder(self.location)

    def create(self, name: str) -> bool:
        try:
            self.put(name, (), None, lambda: None)
        except OSError as error:
            if error.errno in CANNOT_RENAME:
                raise CannotClaim(
                    f"files in {self.location} cannot be renamed, as in a mounted bucket, "
                    "so that no checkpoint would appear whole: give the bucket by its URL, "
                    f"such as s3://BUCKET/PREFIX, or another volume ({error.strerror})"
                ) from error
            raise
        return True  # over NFS, a file system does not reliably tell who was first

    def rename(self, partial: Path, name: str) -> None:
        partial.rename(self.location / name)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            _delete(self.location / name)

    def clean(self, generation: int) -> None:
        for name in self.names():
            match = _PARTIAL.fullmatch(name)
            if match is None:
                continue
            with contextlib.suppress(OSError):
                old = self._written_at - (self.location / name).stat().st_mtime > STALE_SECONDS
                if old or int(match[1]) < generation:
                    _delete(self.location / name)

    def open(self, name: str) -> "LocalFile":
        return LocalFile(self.location / name)


class LocalFile:
    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.size = os.fstat(self._file.fileno()).st_size

    def read_into(self, offset: int, buffer: memoryview) -> None:
        done = 0
        while done < len(buffer):
            count = os.preadv(self._file.fileno(), [buffer[done : done + (1 << 30)]], offset + done)
            if count == 0:
                raise ValueError("torn: it ends too early")
            done += count

    def checksum(self, end: int, read: Sequence[tuple[int, memoryview]]) -> int:
        seen, at = 0, 0
        for offset, buffer in [*sorted(read, key=lambda piece: piece[0]), (end, memoryview(b""))]:
            while at < offset:
                gap = memoryview(bytearray(min(offset - at, READ_BYTES)))
                self.read_into(at, gap)
                seen = zlib.crc32(gap, seen)
                at += len(gap)
            seen = zlib.crc32(buffer, seen)
            at = offset + len(buffer)
        return seen

    def close(self) -> None:
        self._file.close()


def _write_file(path: Path, chunks: Iterable[Chunk]) -> float:
    """Returns the synced file's time by the file system's clock."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        for chunk in chunks:
            _write_all(descriptor, chunk)
        os.fsync(descriptor)
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: Chunk) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("cannot delete %s: %s", path, error.strerror)


def sync_folder(folder: Path) -> None:
    """Raises OSError, unless the file system cannot sync folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise
