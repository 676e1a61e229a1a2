"""Runs the election in a thread with its own event loop, so that a renewal waits for nothing else.

A leader whose event loop hangs must not renew its Lease. So that loop reports to the thread.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")
LOOK_SECONDS = 1.0
MAX_HUNG_SECONDS = 10.0  # less than the liveness probe takes to restart the container


class ElectionThread:
    def __init__(self) -> None:
        # Not the election's clock: a machine that was suspended has not hung.
        self._turned_at = time.monotonic()
        self._logged_at = 0.0
        self._watched = threading.get_ident()
        self._loop, self._closed = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="election", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # it ends what still runs
            runner.run(self._closed.wait())

    @property
    def may_renew(self) -> bool:
        """Whether the watched event loop turns; logs once where it hangs."""
        turned_at = self._turned_at
        seconds = time.monotonic() - turned_at
        if seconds < MAX_HUNG_SECONDS:
            return True
        if self._logged_at != turned_at:
            self._logged_at = turned_at
            stack = "".join(traceback.format_stack(sys._current_frames().get(self._watched)))
            logger.error(
                "the event loop has hung for %.0f s, so the lease is not renewed. It is in:\n%s",
                seconds,
                stack,
            )
        return False

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        found = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))
        try:
            while not found.done():
                self._turned_at = time.monotonic()
                await asyncio.wait({found}, timeout=LOOK_SECONDS)
        finally:
            found.cancel()
        return found.result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join()
