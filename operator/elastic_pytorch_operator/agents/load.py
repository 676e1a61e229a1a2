"""What many agents ask of one operator: how often they report, how soon their job is planned, and whether they can be heard."""

import asyncio
import math
import time
from collections.abc import Callable, Hashable

TICK_SECONDS = 0.1
LATE_SECONDS = 0.5
HEARTBEATS_PER_SECOND = 1000  # that one operator handles: each takes about 0.15 ms of a core
LEAST_SECONDS = 1.0
SECONDS_PER_AGENT = 50e-6  # about four times what a plan costs for each worker


class Hearing:
    """What keeps this operator from hearing agents. An agent that could not be heard is not silent.

    The event loop may be late: another part keeps it busy, or the process gets too little of the
    processor. Then what agents have sent has not been read yet. Or thousands of agents connect at
    once, and their handshakes and the reviews of their tokens take seconds.

    Attributes:
        waiting: since when each connection from a worker pod's address has been open without having
            been let in, the oldest first.
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
        self._crowded_at = now

    async def watch(self) -> None:
        try:
            while True:
                self.lets_in_since(self._clock())
                self._ticked_at = self._clock()
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self._ticked_at = math.inf


class HeartbeatInterval:
    """Seconds between two heartbeats of an agent: the more agents there are, the less often each sends one.

    An agent keeps the interval that it was told last until its next heartbeat. So an interval that
    becomes shorter is not expected of the agents before each had the time to hear of it.
    """

    def __init__(self) -> None:
        self.seconds = LEAST_SECONDS
        self._longer = LEAST_SECONDS  # what some agents may keep
        self._longer_until = 0.0

    def count(self, agents: int, now: float) -> None:
        before = self.seconds
        self.seconds = max(LEAST_SECONDS, agents / HEARTBEATS_PER_SECOND)
        if self.seconds < before:
            self._longer = self.longest(now, before)
            self._longer_until = now + self._longer

    def longest(self, now: float, told: float | None = None) -> float:
        """The longest interval that an agent may keep now, in seconds.

        Args:
            told: what agents are told; None: the interval of now.
        """
        seconds = self.seconds if told is None else told
        return max(seconds, self._longer) if now < self._longer_until else seconds


def delay_of_change(agents: int) -> float:
    """Seconds until the plan after a report on which a decision may depend.

    A plan looks at every worker of the job. If each of a thousand reports that come together had a
    plan of its own, their cost would grow with the square of the workers. So reports wait for each
    other, and the longer the more agents the job has.
    """
    return agents * SECONDS_PER_AGENT
