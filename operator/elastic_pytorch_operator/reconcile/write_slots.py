"""Sends the writes of all jobs: `write_shares` says whose is next, and when none is sent.

A sender has its turn for one write. So a job with thousands of them delays that of another job by one write at most.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol

from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.reconcile.write_shares import MAX_WRITES, Turn, WriteShares

logger = logging.getLogger(__name__)

# Carries one write out. Returns its error; None: it has succeeded.
Write = Callable[[], Awaitable[ClusterError | None]]


class Sender(Hashable, Protocol):
    """Has writes to send."""

    @property
    def namespace(self) -> str:
        """Whose share of the slots its writes take."""
        ...

    def has_urgent(self) -> bool | None:
        """Whether the next write is urgent; None: there is none that may be sent now."""
        ...

    def next_write(self) -> Write:
        """Takes the next write out."""
        ...


class WriteSlots:
    """Gives senders their turns.

    Args:
        clock: monotonic seconds.
        sleep: waits for a number of seconds.
        max_writes: how many writes may be on their way at once.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        max_writes: int = MAX_WRITES,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._max_writes = max_writes
        self._shares: WriteShares[Sender] = WriteShares(max_writes)
        self._tasks: dict[asyncio.Task[None], Turn[Sender]] = {}
        self._waking: asyncio.Task[None] | None = None

    @property
    def longest_write_seconds(self) -> float:
        """For how long the oldest write has been on its way; 0 if there is none."""
        return self._clock() - min(turn.began for turn in self._tasks.values()) if self._tasks else 0.0

    def offer(self, sender: Sender) -> None:
        """Has a sender take its turn if it has something to send."""
        self._add(sender)
        self._fill()

    async def close(self) -> None:
        """Stops all writes, and sends none of those that wait."""
        self._shares = WriteShares(self._max_writes)
        tasks = [*self._tasks, *([self._waking] if self._waking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _add(self, sender: Sender) -> None:
        urgent = sender.has_urgent()
        if urgent is None:
            self._shares.discard(sender, sender.namespace)
        else:
            self._shares.add(sender, sender.namespace, urgent=urgent)

    def _fill(self) -> None:
        now = self._clock()
        if now < self._shares.paused_until and self._waking is None:
            self._waking = asyncio.ensure_future(self._wake())
        while (turn := self._shares.take(now)) is not None:
            task = asyncio.ensure_future(self._send(turn, turn.sender.next_write()))
            self._tasks[task] = turn
            task.add_done_callback(self._tasks.pop)
            self._add(turn.sender)

    async def _wake(self) -> None:
        try:
            await self._sleep(self._shares.paused_until - self._clock())
        finally:
            self._waking = None
        self._fill()

    async def _send(self, turn: Turn[Sender], write: Write) -> None:
        shares, error = self._shares, None
        try:
            error = await write()
        except Exception:
            logger.exception("a write has failed")
        shares.end(turn, self._clock(), error)
        self._fill()
