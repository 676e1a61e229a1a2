"""How often agents report, how soon a report leads to a plan, and whether agents can be heard."""

import asyncio
import math
import time
from collections.abc import Callable, Hashable

TICK_SECONDS = 0.1
LATE_SECONDS = 0.5
HEARTBEATS_PER_SECOND = 1000  # that one operator handles: each takes about 0.15 ms of a core
LEAST_SECONDS = 1.0
SECONDS_PER_AGENT = 50e-6  # four times what a plan costs for each worker


class Hearing:
    """Since when this operator hears agents: one that could not be heard is not silent.

    A late event loop has not read what agents have sent, and the handshakes and token reviews of
    thousands that connect at once take seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # When each connection from a worker pod was opened that is not let in yet, oldest first.
        self.waiting: dict[Hashable, float] = {}
        self._clock = clock
        self._ticked_at = math.inf  # nothing is known of a loop that is not watched
        self._late_at = self._crowded_at = -math.inf

    def on_time_since(self, now: float) -> float:
        """When the event loop was last late; what known agents sent since then has been read."""
        if now - self._ticked_at > LATE_SECONDS:
            self._late_at = now
        return self._late_at

    def lets_in_since(self, now: float) -> float:
        """When an agent last waited long to be let in, or was turned away."""
        if now - next(iter(self.waiting.values()), now) > LATE_SECONDS:
            self._crowded_at = now
        return max(self._crowded_at, self.on_time_since(now))

    def turn_away(self) -> None:
        self._crowded_at = self._clock()

    async def watch(self) -> None:
        try:
            while True:
                self.lets_in_since(self._clock())
                self._ticked_at = self._clock()
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self._ticked_at = math.inf


class HeartbeatInterval:
    """A shorter interval counts only after each agent has had the time to receive it."""

    def __init__(self) -> None:
        self.seconds = LEAST_SECONDS
        self._longer = LEAST_SECONDS  # what some agents may keep
        self._longer_until = 0.0

    def count(self, agents: int, now: float) -> None:
        before, longest = self.seconds, self.longest(now)
        self.seconds = max(LEAST_SECONDS, agents / HEARTBEATS_PER_SECOND)
        if self.seconds < before:
            self._longer = longest
            self._longer_until = now + longest

    def longest(self, now: float) -> float:
        return max(self.seconds, self._longer) if now < self._longer_until else self.seconds


def delay_of_change(agents: int) -> float:
    """Seconds until the plan after a report on which a decision may depend.

    A plan looks at every worker: without the delay, the cost would grow with their square.
    """
    return agents * SECONDS_PER_AGENT
