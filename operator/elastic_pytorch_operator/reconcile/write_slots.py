"""How many writes of all jobs are on their way at once, whose turn is next, and for how long none is sent.

A sender has its turn for one write. So a job with thousands of them delays that of another job by one write at most.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol

from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.reconcile.ready_lists import ReadyLists

logger = logging.getLogger(__name__)

MAX_PARALLEL_WRITES = 50  # about what the API server's priority and fairness grants one client beside its others
NO_ANSWER = 0
OVERLOADED = 429
OVERLOADED_SECONDS = 1.0  # if the API server asks to wait and does not say for how long
MAX_OVERLOADED_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 0.2  # after a write without an answer; twice as long after each further one
MAX_PAUSE_SECONDS = 5.0

# Carries one write out. Returns its error; None: it has succeeded.
Write = Callable[[], Awaitable[ClusterError | None]]


class Sender(Hashable, Protocol):
    """Has writes to send."""

    def has_urgent(self) -> bool | None:
        """Whether the next write is urgent; None: there is none that may be sent now."""
        ...

    def next_write(self) -> Write:
        """Takes the next write out."""
        ...


class WriteSlots:
    """Gives senders their turns.

    An API server that asks to wait is left alone for that time by all senders; afterwards half as many writes are sent at once as before.
    If one gives no answer, one write at a time is tried, after a pause that grows. Each answer allows for one more.

    Args:
        clock: monotonic seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._waiting: ReadyLists[Sender] = ReadyLists()
        self._tasks: dict[asyncio.Task[None], float] = {}  # and when each was sent
        self._limit = MAX_PARALLEL_WRITES
        self._paused_until = 0.0
        self._unanswered = 0
        self._waking: asyncio.Task[None] | None = None

    @property
    def limit(self) -> int:
        """How many writes may be on their way now."""
        return self._limit

    @property
    def longest_write_seconds(self) -> float:
        """For how long the oldest write has been on its way; 0 if there is none."""
        return self._clock() - min(self._tasks.values()) if self._tasks else 0.0

    def offer(self, sender: Sender) -> None:
        """Has a sender take its turn if it has something to send."""
        urgent = sender.has_urgent()
        if urgent is None:
            self._waiting.discard(sender)
        else:
            self._waiting.add(sender, urgent=urgent)
        self._fill()

    async def close(self) -> None:
        """Stops all writes, and sends none of those that wait."""
        self._waiting = ReadyLists()
        tasks = [*self._tasks, *([self._waking] if self._waking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fill(self) -> None:
        if self._waking is not None:
            return
        if self._clock() < self._paused_until:
            self._waking = asyncio.ensure_future(self._wake())
            return
        while len(self._waiting) and len(self._tasks) < self._limit:
            sender = self._waiting.pop()
            if sender.has_urgent() is None:
                continue
            write = sender.next_write()
            if (urgent := sender.has_urgent()) is not None:
                self._waiting.add(sender, urgent=urgent)
            task = asyncio.ensure_future(self._send(write))
            self._tasks[task] = self._clock()
            task.add_done_callback(self._end)

    async def _wake(self) -> None:
        try:
            await self._sleep(self._paused_until - self._clock())
        finally:
            self._waking = None
        self._fill()

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            self._fill()

    async def _send(self, write: Write) -> None:
        try:
            error = await write()
        except Exception:
            logger.exception("a write has failed")
            return
        if error is None or error.code not in (NO_ANSWER, OVERLOADED):
            self._limit = min(self._limit + 1, MAX_PARALLEL_WRITES)
            self._unanswered = 0
            return
        # Writes that were sent together fail together: that counts as one failure.
        now, fresh = self._clock(), self._clock() >= self._paused_until
        if error.code == OVERLOADED:
            seconds = min(error.retry_after_seconds or OVERLOADED_SECONDS, MAX_OVERLOADED_SECONDS)
            self._paused_until = max(self._paused_until, now + seconds)
            self._limit = max(1, self._limit // 2) if fresh else self._limit
        elif fresh:
            self._paused_until = now + min(FIRST_PAUSE_SECONDS * 2 ** min(self._unanswered, 16), MAX_PAUSE_SECONDS)
            self._limit = 1
            self._unanswered += 1
