"""Objects as streams, for libraries that write from the beginning and read anywhere."""

import io
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PART_BYTES = 16 << 20  # of an upload or a download
# Parts in flight, which with their size bound the memory of an upload or a download.
PARALLEL = 4
# Of a small read: torch reads a tensor's file in many of these, back and forth.
BLOCK_BYTES = 1 << 20
BLOCKS = 4  # that are kept
BUFFER_BYTES = 64 << 10  # of a stream, for small reads without Python's code


class ObjectWriter(io.RawIOBase):
    def __init__(self, stream: Any, plain: Callable[[Exception], OSError]) -> None:
        self._stream = stream
        self._plain = plain
        self.size = 0  # in bytes
        self.checksum = 0  # CRC-32

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), PART_BYTES):
            # The library sends a copy after this returns, when torch may have reused the memory.
            self._do(self._stream.write, part := bytes(view[start : start + PART_BYTES]))
            self.checksum = zlib.crc32(part, self.checksum)
        self.size += len(view)
        return len(view)

    def finish(self) -> None:
        """Waits until the object exists, or raises OSError."""
        self._do(self._stream.close)

    def _do(self, action: Callable[..., object], *arguments: object) -> None:
        try:
            action(*arguments)
        except Exception as error:
            raise self._plain(error) from error


class ObjectRanges(io.RawIOBase):
    """Reads large ranges in parallel parts, and small ones from kept blocks.

    `read` fetches a range, given its first byte and the one behind its last.
    """

    def __init__(self, size: int, read: Callable[[int, int], Any]) -> None:
        self._size = size
        self._read = read
        self._at = 0
        self._blocks: dict[int, memoryview] = {}
        self._pool = ThreadPoolExecutor(PARALLEL, "object ranges")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        start, end = self._at, min(self._at + len(view), self._size)
        done = start
        while done < end:
            if end - done < BLOCK_BYTES:
                number, within = divmod(done, BLOCK_BYTES)
                part = self._block(number)[within : within + end - done]
                view[done - start : done - start + len(part)] = part
                done += len(part)
            else:
                self._read_large(done, end, view[done - start :])
                done = end
        self._at = max(start, end)
        return self._at - start

    def _block(self, number: int) -> memoryview:
        if number not in self._blocks:
            if len(self._blocks) == BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            start = number * BLOCK_BYTES
            self._blocks[number] = memoryview(
                self._read(start, min(start + BLOCK_BYTES, self._size))
            )
        return self._blocks[number]

    def _read_large(self, start: int, end: int, view: memoryview) -> None:
        starts = range(start, end, PART_BYTES)
        ends = [min(first + PART_BYTES, end) for first in starts]
        for first, part in zip(starts, self._pool.map(self._read, starts, ends), strict=True):
            view[first - start : first - start + len(part)] = part

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        super().close()
