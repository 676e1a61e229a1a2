"""A checkpoint's bytes and names, on a disk and in object storage. Standard library only.

A checkpoint is a header (magic, format version, generation, step), the payload (see `payload`), and
a trailer (the payload's length, a checksum of all before it, magic). The CRC-32 guards against torn
writes and rotten disks, not against forgers.
"""

import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from elastic_pytorch.state_format.state_version import StateVersion

VERSION = 1
MAGIC = b"EPTCKPT\n"
END_MAGIC = b"\nEPTEND\n"
HEADER = struct.Struct("<8sI4xQQ32x")  # magic, format version, generation, step
TRAILER = struct.Struct("<QI8s")  # bytes of the payload, checksum, magic
READ_BYTES = 4 << 20
FILE, SHARDED = ".elastic", ".sharded"  # ends of names: of a file, or a folder of all ranks' files

# 18 digits fit into a header's numbers, and into those that ranks exchange.
_NAME = re.compile(r"checkpoint-g(\d{6,18})-s(\d{9,18})(\.\w+)")
_CLAIM = re.compile(r"\.claim-g(\d{6,18})")

Chunk = bytes | bytearray | memoryview


class CannotClaim(Exception):
    """The storage cannot keep a cut-off group from writing beside its successor."""


class StoredFile(Protocol):
    size: int  # in bytes

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Raises ValueError if the file ends too early, or OSError."""

    def checksum(self, end: int, read: Sequence[tuple[int, memoryview]]) -> int:
        """Returns the CRC-32 of the bytes before `end`; raises what `read_into` does.

        It does not read the offsets and buffers of `read` again, which do not overlap.
        """

    def close(self) -> None:
        pass


def name_of(version: StateVersion, kind: str = FILE) -> str:
    return f"checkpoint-g{version.generation:06}-s{version.step:09}{kind}"


def version_of(name: str, kind: str = FILE) -> StateVersion | None:
    match = _NAME.fullmatch(name)
    return StateVersion(int(match[1]), int(match[2])) if match and match[3] == kind else None


def claim_name(generation: int) -> str:
    return f".claim-g{generation:06}"


def claims_of(names: Iterable[str]) -> dict[str, int]:
    return {name: int(match[1]) for name in names if (match := _CLAIM.fullmatch(name))}


def framed(version: StateVersion, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    header = HEADER.pack(MAGIC, VERSION, *version)
    yield header
    checksum, length = zlib.crc32(header), 0
    for chunk in chunks:
        yield chunk
        checksum = zlib.crc32(chunk, checksum)
        length += len(chunk)
    yield TRAILER.pack(length, checksum, END_MAGIC)


def read_frame(file: StoredFile) -> tuple[StateVersion, int, int]:
    """Returns the version, the payload's bytes, and the checksum of header and payload."""
    size = file.size
    header = _read(file, 0, min(HEADER.size, size))
    if header[: len(MAGIC)] != MAGIC[: len(header)]:
        raise ValueError("foreign: it does not begin as a checkpoint does")
    if size < HEADER.size + TRAILER.size:
        raise ValueError(f"torn: it has {size} bytes")
    _, format_version, generation, step = HEADER.unpack(header)
    if format_version != VERSION:
        raise ValueError(
            f"foreign: it is of version {format_version}, and this release reads version {VERSION}"
        )
    length, checksum, end = TRAILER.unpack(_read(file, size - TRAILER.size, TRAILER.size))
    if end != END_MAGIC or length != size - HEADER.size - TRAILER.size:
        raise ValueError("torn: it does not end as a checkpoint does")
    return StateVersion(generation, step), length, checksum


def _read(file: StoredFile, offset: int, length: int) -> bytearray:
    data = bytearray(length)
    file.read_into(offset, memoryview(data))
    return data
