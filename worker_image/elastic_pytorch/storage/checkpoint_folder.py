"""The checkpoint folder: the newest few files, each whole or absent, and a claim that keeps a cut-off group out.

A file is a header (magic, format version, generation, step), the payload (see `payload`), and a trailer (the payload's length, a checksum
of all before it, magic). The checksum is a CRC-32: it guards against torn writes and rotten disks, not against forgers. It finds every
flipped bit and every run of up to 32 of them, and is the fastest that the standard library has. Standard library only: the checkpoint
writer needs no torch.
"""

import contextlib
import errno
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from elastic_pytorch.log import logger
from elastic_pytorch.state_format.state_version import StateVersion

VERSION = 1
MAGIC = b"EPTCKPT\n"
END_MAGIC = b"\nEPTEND\n"
HEADER = struct.Struct("<8sI4xQQ32x")  # magic, format version, generation, step
TRAILER = struct.Struct("<QI8s")  # bytes of the payload, checksum, magic
STALE_SECONDS = 3600.0
# The errors of file systems that cannot sync a folder. Data is synced before, and a failing disk returns other errors.
CANNOT_SYNC = frozenset(
    {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS, errno.ENOSYS, errno.EACCES, errno.EPERM, errno.EISDIR}
)
READ_BYTES = 4 << 20

_NAME = re.compile(r"checkpoint-g(\d{6,19})-s(\d{9,19})\.elastic")
_PARTIAL = re.compile(r"\.partial-g(\d{6,19})-s\d{9,19}-[0-9a-f]{16}")
_CLAIM = re.compile(r"\.claim-g(\d{6,19})")


class Superseded(Exception):
    """The folder is claimed by a newer group: this one may not write any more."""


class Checkpoint(NamedTuple):
    """A checkpoint file."""

    version: StateVersion
    path: Path


def write(
    folder: str | os.PathLike[str], version: StateVersion, chunks: Iterable[bytes | bytearray | memoryview], keep: int
) -> Path:
    """Writes a checkpoint, and deletes older ones when it is safe on the disk.

    Args:
        folder: created if it does not exist.
        version: of the state.
        chunks: the payload's bytes. If this raises, no checkpoint is created.
        keep: how many checkpoints to leave there, including this one; those of a larger version do not count and stay.

    Returns:
        The file.

    Raises:
        Superseded: a larger generation has claimed the folder; nothing has been written, or at least nothing deleted.
        OSError: it could not be written; nothing has been deleted.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}: at least one checkpoint is kept")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _check_claim(folder, version)
    path = folder / _name(version)
    partial = folder / f".partial-g{version.generation:06}-s{version.step:09}-{os.urandom(8).hex()}"
    try:
        written_at = _write_file(partial, version, chunks)
        _check_claim(folder, version)
        partial.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync_folder(folder)
    _check_claim(folder, version)
    _delete_older(folder, version, keep, written_at)
    return path


def newest(folder: str | os.PathLike[str]) -> Iterator[Checkpoint]:
    """Yields the whole checkpoints, the newest first, each read through in its turn; damaged ones are skipped with a warning.

    Raises:
        OSError: the folder cannot be read. A missing folder is not an error: it has no checkpoints.
    """
    for version, path in by_name(folder):
        try:
            with path.open("rb") as file:
                for _ in payload_of(file, version):
                    pass
        except (OSError, ValueError) as error:
            logger.warning("checkpoint %s is skipped: %s", path, error)
            continue
        yield Checkpoint(version, path)


def by_name(folder: str | os.PathLike[str]) -> list[Checkpoint]:
    """Returns the files that have a checkpoint's name, whole or not, the newest first.

    Raises:
        OSError: the folder cannot be read. A missing folder is not an error: it has no checkpoints.
    """
    return sorted(_checkpoints(Path(folder)), reverse=True)


def newest_name(folder: str | os.PathLike[str]) -> StateVersion | None:
    """Returns the newest version in the files' names, whole or not; None: there is none.

    Raises:
        OSError: the folder cannot be read.
    """
    return max((version for version, _ in _checkpoints(Path(folder))), default=None)


def payload_of(file: IO[bytes], expected: StateVersion | None = None) -> Iterator[memoryview]:
    """Reads a checkpoint's payload, piece by piece; a piece is valid until the next one is asked for.

    Only after the last piece are all of them known to be what was written.

    Raises:
        ValueError: it is damaged, or not a checkpoint; the message says which.
        OSError: it cannot be read.
    """
    version, length, checksum = read_frame(file)
    file.seek(0)
    seen = zlib.crc32(file.read(HEADER.size))
    buffer = memoryview(bytearray(min(READ_BYTES, length)))
    left = length
    while left:
        count = file.readinto(buffer[: min(left, len(buffer))])  # type: ignore[attr-defined]
        if not count:
            raise ValueError("torn: it ends too early")
        seen = zlib.crc32(buffer[:count], seen)
        left -= count
        yield buffer[:count]
    if seen != checksum:
        raise ValueError("corrupt: the checksum is wrong")
    if expected is not None and version != expected:
        raise ValueError(f"foreign: it is named after {tuple(expected)}, and holds {tuple(version)}")


def read_frame(file: IO[bytes]) -> tuple[StateVersion, int, int]:
    """Returns a checkpoint's version, its payload's length in bytes, and the checksum that header and payload should have.

    Raises:
        ValueError: this is not a checkpoint, or it has no end; the message says which.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    header = file.read(HEADER.size)
    if header[: len(MAGIC)] != MAGIC[: len(header)]:
        raise ValueError("foreign: it does not begin as a checkpoint does")
    if size < HEADER.size + TRAILER.size:
        raise ValueError(f"torn: it has {size} bytes")
    _, format_version, generation, step = HEADER.unpack(header)
    if format_version != VERSION:
        raise ValueError(f"foreign: it is of version {format_version}, and this release reads version {VERSION}")
    file.seek(size - TRAILER.size)
    length, checksum, end = TRAILER.unpack(file.read(TRAILER.size))
    if end != END_MAGIC or length != size - HEADER.size - TRAILER.size:
        raise ValueError("torn: it does not end as a checkpoint does")
    return StateVersion(generation, step), length, checksum


def claim(folder: str | os.PathLike[str], generation: int) -> None:
    """Claims the folder: from now on only groups of this generation or a larger one may write here.

    Raises:
        OSError: the claim could not be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f".claim-g{generation:06}").touch()
    sync_folder(folder)
    for name in _names(folder):
        match = _CLAIM.fullmatch(name)
        if match and int(match[1]) < generation:
            with contextlib.suppress(OSError):  # it has no effect any more
                (folder / name).unlink(missing_ok=True)


def claimed(folder: str | os.PathLike[str]) -> int:
    """Returns the generation that the folder is claimed for; 0: no group has claimed it.

    Raises:
        OSError: the folder cannot be read.
    """
    return max((int(match[1]) for name in _names(Path(folder)) if (match := _CLAIM.fullmatch(name))), default=0)


def _check_claim(folder: Path, version: StateVersion) -> None:
    generation = claimed(folder)
    if generation > version.generation:
        raise Superseded(f"{folder} is claimed by generation {generation}, and this is generation {version.generation}")


def _write_file(path: Path, version: StateVersion, chunks: Iterable[bytes | bytearray | memoryview]) -> float:
    """Writes a file and syncs it to the disk; returns its time by the file system's clock."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        header = HEADER.pack(MAGIC, VERSION, *version)
        _write_all(descriptor, header)
        checksum, length = zlib.crc32(header), 0
        for chunk in chunks:
            _write_all(descriptor, chunk)
            checksum = zlib.crc32(chunk, checksum)
            length += len(chunk)
        _write_all(descriptor, TRAILER.pack(length, checksum, END_MAGIC))
        os.fsync(descriptor)
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _delete_older(folder: Path, version: StateVersion, keep: int, now: float) -> None:
    """Deletes superseded checkpoints and the remains of unfinished ones. What cannot be deleted stays."""
    older = sorted((found for found in _checkpoints(folder) if found.version < version), reverse=True)
    for _, path in older[keep - 1 :]:
        _delete(path)
    for name in _names(folder):
        match = _PARTIAL.fullmatch(name)
        if match is None:
            continue
        with contextlib.suppress(OSError):
            # By the file system's clock, as this machine's may be wrong.
            old = now - (folder / name).stat().st_mtime > STALE_SECONDS
            if old or int(match[1]) < version.generation:
                _delete(folder / name)


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("cannot delete %s: %s", path, error.strerror)


def _checkpoints(folder: Path) -> list[Checkpoint]:
    return [
        Checkpoint(StateVersion(int(match[1]), int(match[2])), folder / name)
        for name in _names(folder)
        if (match := _NAME.fullmatch(name))
    ]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is wanted
    except FileNotFoundError:
        return []


def _name(version: StateVersion) -> str:
    return f"checkpoint-g{version.generation:06}-s{version.step:09}.elastic"


def sync_folder(folder: Path) -> None:
    """Syncs a folder's names to the disk, on file systems that can.

    Raises:
        OSError: the file system can, but failed.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise
