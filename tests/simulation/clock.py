"""The time of a simulated world, with what was skipped, and what is due by it."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(order=True)
class Due:
    """Something that happens at a time, unless it is cancelled.

    Attributes:
        at: seconds since the world's begin.
        number: of all that was ever due: what is due at the same time happens in this order.
        what: happens; None: nothing any more.
    """

    at: float
    number: int
    what: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        self.what = None


class Clock:
    """Tells the seconds since the world's begin, and keeps what is due by them.

    The event loop's own time stands still while some are skipped, so that no lease runs out and no
    agent is silent meanwhile.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._skipped_seconds = loop, 0.0
        self._due: list[Due] = []
        self._numbers = itertools.count()

    @property
    def seconds(self) -> float:
        return self._loop.time() + self._skipped_seconds

    @property
    def next_at(self) -> float:
        """When something is due next; inf: nothing is."""
        while self._due and self._due[0].what is None:
            heapq.heappop(self._due)
        return self._due[0].at if self._due else float("inf")

    def after(self, seconds: float, what: Callable[[], None]) -> Due:
        """Has something happen in a number of seconds, skipped ones included."""
        due = Due(self.seconds + seconds, next(self._numbers), what)
        heapq.heappush(self._due, due)
        return due

    async def pass_until(self, at: float) -> None:
        """Lets time pass, and all happen that is due by then."""
        while (next_at := min(at, self.next_at)) > self.seconds:
            await asyncio.sleep(next_at - self.seconds)
            while self.next_at <= self.seconds:
                what = heapq.heappop(self._due).what
                assert what is not None
                what()

    def skip_until(self, at: float) -> None:
        self._skipped_seconds += max(0.0, at - self.seconds)
