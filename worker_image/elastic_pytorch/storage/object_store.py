"""Checkpoints in object storage by obstore: S3 and its protocol, and Google Cloud Storage.

An object appears whole by itself, so nothing is renamed. The library repeats requests that the
storage has refused for a while (503, 429), and those whose connection was cut.
"""

import errno
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

from elastic_pytorch.log import logger
from elastic_pytorch.object_url import ObjectUrl
from elastic_pytorch.storage.checkpoint_format import TRAILER, CannotClaim, Chunk
from elastic_pytorch.storage.object_credentials import options_for
from elastic_pytorch.storage.object_errors import lacks_conditions, plain_error
from elastic_pytorch.storage.object_streams import (
    BUFFER_BYTES,
    PARALLEL,
    PART_BYTES,
    ObjectRanges,
    ObjectWriter,
)

MAX_PARTS = 9_000  # S3 takes 10,000
# Each pause is random between the first and `base` times the last: with a base of 2 they would not
# grow. The time is the limit.
RETRIES = {
    "max_retries": 1000,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "init_backoff": timedelta(milliseconds=200),
        "max_backoff": timedelta(seconds=10),
        "base": 3,
    },
}
CLIENT = {"connect_timeout": "5s", "timeout": "120s"}  # of one request, with its body


def obstore() -> Any:
    try:
        import obstore  # noqa: PLC0415 - only for those who keep checkpoints in object storage
        import obstore.exceptions  # noqa: PLC0415
        import obstore.store  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "checkpoints in object storage need the library obstore in the image of the workers: "
            f"pip install obstore ({error})"
        ) from error
    return obstore


class ObjectStore:
    def __init__(self, url: ObjectUrl, retries: dict[str, Any] = RETRIES) -> None:
        self._obstore = obstore()
        self.location = url
        try:
            options = options_for(url.scheme)
            options["client_options"] = {**CLIENT, **options.get("client_options", {})}
            self._store = self._obstore.store.from_url(str(url), retry_config=retries, **options)
        except (self._obstore.exceptions.BaseError, ValueError) as error:
            raise plain_error(error, url) from error

    def names(self) -> list[str]:
        return [each["path"] for each in self._list()["objects"]]

    def sizes(self) -> dict[str, int]:
        return {each["path"]: each["size"] for each in self._list()["objects"]}

    def folders(self) -> list[str]:
        return [prefix.strip("/").rpartition("/")[2] for prefix in self._list()["common_prefixes"]]

    def _list(self) -> Any:
        return self._does(self._obstore.list_with_delimiter, self._store)

    def open(self, name: str) -> "ObjectFile":
        return ObjectFile(self._size(name), partial(self._range, name))

    def _size(self, name: str) -> int:
        return int(self._does(self._obstore.head, self._store, name)["size"])

    def _range(self, name: str, start: int, end: int) -> Any:
        return self._does(self._obstore.get_range, self._store, name, start=start, end=end)

    def put(
        self, name: str, chunks: Iterable[Chunk], size: int | None, check: Callable[[], object]
    ) -> None:
        part_bytes = max(PART_BYTES, -(-(size or 0) // MAX_PARTS))
        parts = _parts(chunks, part_bytes)
        first = next(parts, b"")
        if len(first) < part_bytes:
            check()
            self._does(self._obstore.put, self._store, name, first, use_multipart=False)
            return

        def checked() -> Iterator[Chunk]:
            yield first
            yield from parts
            # In another thread, because this one drives the upload. If it raises, the upload is
            # aborted, and the object does not appear.
            with ThreadPoolExecutor(1, "claim check") as pool:
                pool.submit(check).result()

        self._does(
            self._obstore.put,
            self._store,
            name,
            checked(),
            use_multipart=True,
            chunk_size=part_bytes,
            max_concurrency=PARALLEL,
        )

    def writer(self, name: str, size: int) -> ObjectWriter:
        """Returns a stream for about `size` bytes; the object appears when it is closed."""
        part_bytes = max(PART_BYTES, -(-size // MAX_PARTS))
        stream = self._does(
            self._obstore.open_writer,
            self._store,
            name,
            buffer_size=part_bytes,
            max_concurrency=PARALLEL,
        )
        return ObjectWriter(stream, lambda error: plain_error(error, self.location))

    def reader(self, name: str) -> io.BufferedReader:
        ranges = ObjectRanges(self._size(name), partial(self._range, name))
        return io.BufferedReader(ranges, BUFFER_BYTES)

    def create(self, name: str) -> bool:
        try:
            self._obstore.put(self._store, name, b"", mode="create")
        except self._obstore.exceptions.AlreadyExistsError:
            return False
        except (
            self._obstore.exceptions.BaseError,
            FileNotFoundError,
            NotImplementedError,
        ) as error:
            if lacks_conditions(error):
                raise CannotClaim(
                    f"the storage of bucket {self.location.bucket} does not write on the condition "
                    "that an object is absent (If-None-Match), which State needs to keep out a "
                    "group that was cut off: use storage that does, "
                    "or a folder on a volume that all pods share"
                ) from error
            raise plain_error(error, self.location) from error
        return True

    def delete(self, names: Sequence[str]) -> None:
        if not names:
            return
        try:
            self._does(self._obstore.delete, self._store, list(names))
        except OSError as error:
            logger.warning(
                "cannot delete %s in %s: %s",
                ", ".join(names),
                self.location,
                error.strerror or error,
            )

    def clean(self, generation: int) -> None:
        """Does nothing: only the bucket's lifecycle deletes the parts of aborted uploads."""

    def _does(self, action: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return action(*arguments, **options)
        except (self._obstore.exceptions.BaseError, FileNotFoundError) as error:
            raise plain_error(error, self.location) from error
        except BaseException as error:
            # A panic of Rust is no Exception, and would end the checkpoint writer's thread.
            if type(error).__name__ != "PanicException":
                raise
            raise OSError(
                errno.EIO, f"the library obstore has failed: {error}", str(self.location)
            ) from error


class ObjectFile:
    """An object that is fetched from its beginning, ahead of its reader.

    Each piece is kept until its turn, so that the checksum costs no request. The end may be read
    first.
    """

    def __init__(self, size: int, read: Callable[[int, int], Any]) -> None:
        self.size = size
        self._read = read
        self._pool = ThreadPoolExecutor(PARALLEL, "object reader")
        self._pieces: dict[int, Future[memoryview]] = {}
        self._summed = 0  # pieces in the checksum, without those with a byte of the trailer
        self._sum = 0

    def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset + len(buffer) > self.size:
            raise ValueError("torn: it ends too early")
        done = 0
        while done < len(buffer):
            number, within = divmod(offset + done, PART_BYTES)
            part = self._piece(number)[within : within + len(buffer) - done]
            buffer[done : done + len(part)] = part
            done += len(part)

    def checksum(self, end: int, read: Sequence[tuple[int, memoryview]]) -> int:
        del read
        seen, at = self._sum, self._summed * PART_BYTES
        while at < end:
            piece = self._piece(at // PART_BYTES)[: end - at]
            seen = zlib.crc32(piece, seen)
            at += len(piece)
        return seen

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pieces.clear()

    def _piece(self, number: int) -> memoryview:
        last = (self.size - 1) // PART_BYTES
        for ahead in range(number, min(number + PARALLEL, last + 1)):
            if ahead not in self._pieces:
                self._pieces[ahead] = self._pool.submit(self._fetch, ahead)
        piece = self._pieces[number].result()
        if number == self._summed and (number + 1) * PART_BYTES <= self.size - TRAILER.size:
            self._sum = zlib.crc32(piece, self._sum)
            self._summed += 1
            self._pieces.pop(number - 1, None)
        return piece

    def _fetch(self, number: int) -> memoryview:
        start = number * PART_BYTES
        end = min(start + PART_BYTES, self.size)
        piece = memoryview(self._read(start, end))
        if len(piece) != end - start:
            raise ValueError("torn: it ends too early")
        return piece


def _parts(chunks: Iterable[Chunk], part_bytes: int) -> Iterator[bytearray]:
    """Joins chunks into parts of equal size, each in its own memory for its upload."""
    part, filled = bytearray(part_bytes), 0
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            count = min(len(view), part_bytes - filled)
            part[filled : filled + count] = view[:count]
            filled, view = filled + count, view[count:]
            if filled == part_bytes:
                yield part
                part, filled = bytearray(part_bytes), 0
    if filled:
        del part[filled:]
        yield part
