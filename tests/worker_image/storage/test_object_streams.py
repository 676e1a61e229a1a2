import io
import random
from collections.abc import Callable
from contextlib import closing

import pytest
from elastic_pytorch.object_url import location_of
from elastic_pytorch.storage import object_streams
from elastic_pytorch.storage.object_store import ObjectStore
from elastic_pytorch.storage.object_streams import BLOCK_BYTES, PART_BYTES, ObjectRanges

from tests.worker_image.object_storage import Bucket, s3_error

CONTENT = random.Random(1).randbytes(PART_BYTES + 3 * BLOCK_BYTES + 17)


def reader() -> tuple[io.BufferedReader, list[tuple[int, int]]]:
    ranges: list[tuple[int, int]] = []

    def read(start: int, end: int) -> bytes:
        ranges.append((start, end))
        return CONTENT[start:end]

    return io.BufferedReader(ObjectRanges(len(CONTENT), read), object_streams.BUFFER_BYTES), ranges


def test_any_range_is_read_as_from_a_file() -> None:
    stream, _ = reader()
    file = io.BytesIO(CONTENT)
    chance = random.Random(2)
    for _ in range(200):
        at, length = (
            chance.randrange(len(CONTENT)),
            chance.choice([0, 1, 30, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 5]),
        )
        assert stream.seek(at) == file.seek(at)
        assert stream.read(length) == file.read(length)
    for whence, offset in ((io.SEEK_END, -5), (io.SEEK_CUR, -3)):
        assert stream.seek(offset, whence) == file.seek(offset, whence)
        assert stream.read() == file.read()


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        ([(0, 4), (BLOCK_BYTES - 30, 20), (10, 50), (7, 1)], 2),
        ([(0, len(CONTENT))], 3),
        ([(at, 9) for at in range(0, 4 * BLOCK_BYTES, 100_000)], 4),
    ],
    ids=["back-and-forth", "all-of-it", "in-order"],
)
def test_few_requests_are_made(reads: list[tuple[int, int]], expected: int) -> None:
    stream, ranges = reader()
    for at, length in reads:
        stream.seek(at)
        assert stream.read(length) == CONTENT[at : at + length]
    assert len(ranges) <= expected, ranges


def store(bucket: Bucket) -> ObjectStore:
    return ObjectStore(location_of(bucket.url))


def write(
    bucket: Bucket, pieces: list[memoryview], after: Callable[[], None] = lambda: None
) -> tuple[int, int]:
    writer = store(bucket).writer("one", len(CONTENT))
    for piece in pieces:
        writer.write(piece)
        after()
    writer.finish()
    return writer.size, writer.checksum


@pytest.mark.process
def test_memory_that_is_given_back_after_a_write_was_written(bucket: Bucket) -> None:
    memory = bytearray(b"a" * 1000)
    for letter in b"bc":
        seen = bytes(memory)

        def overwrite(letter: int = letter) -> None:
            memory[:] = bytes([letter]) * len(memory)

        write(bucket, [memoryview(memory)], overwrite)
        assert bucket.server.get(f"/{bucket.name}/run/one") == seen


@pytest.mark.process
def test_large_object_is_written_in_parts_and_is_what_was_written(bucket: Bucket) -> None:
    half = len(CONTENT) // 2
    size, checksum = write(bucket, [memoryview(CONTENT)[:half], memoryview(CONTENT)[half:]])
    assert bucket.proxy.kinds().count("part") == 2
    with closing(store(bucket).open("one")) as file:
        assert (file.size, file.checksum(file.size, [])) == (size, checksum)
    with store(bucket).reader("one") as stream:
        assert stream.read() == CONTENT


@pytest.mark.process
@pytest.mark.parametrize("kind", ["begin", "part", "end", "put"])
def test_what_cannot_be_written_does_not_appear(bucket: Bucket, kind: str) -> None:
    bucket.proxy.fault = lambda request: (
        s3_error(403, "AccessDenied") if request.kind == kind else None
    )
    content = memoryview(CONTENT)[:100] if kind == "put" else memoryview(CONTENT)
    with pytest.raises(PermissionError, match=f"bucket {bucket.name} refuses these credentials"):
        write(bucket, [content])
    assert bucket.names() == []
