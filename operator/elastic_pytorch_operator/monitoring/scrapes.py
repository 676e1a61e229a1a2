"""The text that Prometheus reads: made at most once in some seconds, for all who ask, and not by the event loop.

With a thousand namespaces it is some megabytes, and takes the better part of a second. Any pod may ask for it.
"""

import asyncio
import math
import time
from collections.abc import Callable

FRESH_SECONDS = 5.0


class Scrapes:
    """Keeps the text.

    Args:
        begin: takes the values, and returns what makes the text of them, in a thread.
    """

    def __init__(self, begin: Callable[[], Callable[[], bytes]], clock: Callable[[], float] = time.monotonic) -> None:
        self._begin = begin
        self._clock = clock
        self._begun_at = -math.inf
        self._making: asyncio.Task[bytes] | None = None

    async def text(self) -> bytes:
        """The text, at most so old. All that ask while it is made get the same text, or the same error.

        Raises:
            Exception: it could not be made.
        """
        if self._making is None or (self._making.done() and self._clock() >= self._begun_at + FRESH_SECONDS):
            self._begun_at = self._clock()
            self._making = asyncio.create_task(asyncio.to_thread(self._begin()))
        return await asyncio.shield(self._making)
