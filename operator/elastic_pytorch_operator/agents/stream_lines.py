"""The lines of an agent's stream, read at the rate that its pod may send them.

After a line over the limit the stream is not read for a while, so that TCP stops the sender. Each
line has its own turn of the event loop.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import StreamReader

from elastic_pytorch_operator.agents.heartbeat import MalformedHeartbeat

PAUSE_SECONDS = 0.25  # after a refused line
MAX_LINE_BYTES = 64 * 1024
MAX_HELD_BYTES = 4 * 1024 * 1024  # of unfinished lines, in all streams of a namespace
LINE_SECONDS = 10.0  # in which a line that has begun must end; an agent sends it at once
LINE_BYTES = 2048  # longer lines count as several: reading JSON takes time by its length


TOO_LONG = "a line is too long, or takes too long to come"


class HeldBytes:
    def __init__(self) -> None:
        self.count = 0


class StreamLines:
    """A sender may cut its lines into chunks of a byte: nothing is copied or searched twice.

    `admit` admits that many lines and returns 0, or the seconds until it would.
    """

    def __init__(
        self, content: StreamReader, admit: Callable[[float], float], held: HeldBytes
    ) -> None:
        self._content = content
        self._held = held
        self._admit = admit
        self._read = bytearray()
        self.refused_seconds = 0.0  # until the limit admits the last line; 0: it was admitted

    async def next(self) -> bytes:
        """The next line; empty at the end of the body.

        Raises MalformedHeartbeat if it exceeds MAX_LINE_BYTES, LINE_SECONDS or, with other lines of
        the namespace, MAX_HELD_BYTES.
        """
        await asyncio.sleep(PAUSE_SECONDS if self.refused_seconds else 0)
        if not self._read:
            self._read += await self._content.readany()
        try:
            async with asyncio.timeout(LINE_SECONDS):
                line = await self._read_line()
        except TimeoutError as error:
            raise MalformedHeartbeat(TOO_LONG) from error
        self.refused_seconds = self._admit(max(1.0, len(line) / LINE_BYTES))
        return line

    async def _read_line(self) -> bytes:
        searched = 0
        while not (end := self._read.find(b"\n", searched) + 1):
            searched = len(self._read)
            with self._holding(searched):
                if not (more := await self._content.readany()):
                    end = searched
                    break
            self._read += more
            await asyncio.sleep(0)  # more may have been received
        if end > MAX_LINE_BYTES:
            raise MalformedHeartbeat(TOO_LONG)
        line = bytes(self._read[:end])
        del self._read[:end]
        return line

    @contextmanager
    def _holding(self, size: int) -> Iterator[None]:
        if size > MAX_LINE_BYTES or self._held.count + size > MAX_HELD_BYTES:
            raise MalformedHeartbeat(TOO_LONG)
        self._held.count += size
        try:
            yield
        finally:
            self._held.count -= size
