"""Whether this operator can hear what agents say. An agent that could not be heard is not silent.

The event loop may be late: another part keeps it busy, or the process gets too little of the processor. Then what agents have sent has not
been read yet. Or thousands of agents connect at once, and their handshakes and the reviews of their tokens take seconds.
"""

import asyncio
import math
import time
from collections.abc import Callable, Hashable

TICK_SECONDS = 0.1
LATE_SECONDS = 0.5


class Hearing:
    """What keeps this operator from hearing agents.

    Attributes:
        waiting: since when each connection from a worker pod's address has been open without having been let in, the oldest first.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.waiting: dict[Hashable, float] = {}
        self._clock = clock
        self._ticked_at = math.inf  # of a loop that is not watched, nothing is known
        self._late_at = self._crowded_at = -math.inf

    def on_time_since(self, now: float) -> float:
        """Since when the event loop has been on time: what known agents have sent since then has been read."""
        if now - self._ticked_at > LATE_SECONDS:
            self._late_at = now
        return self._late_at

    def lets_in_since(self, now: float) -> float:
        """Since when no agent has had to wait long to be let in, and none was turned away."""
        if now - next(iter(self.waiting.values()), now) > LATE_SECONDS:
            self._crowded_at = now
        return max(self._crowded_at, self.on_time_since(now))

    def turn_away(self, now: float) -> None:
        """Takes note that an agent was told to come again."""
        self._crowded_at = now

    async def watch(self) -> None:
        """Watches the event loop until it is cancelled."""
        try:
            while True:
                self.lets_in_since(self._clock())
                self._ticked_at = self._clock()
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self._ticked_at = math.inf
