"""How often agents send heartbeats: each less often, the more of them there are. Pure: times are arguments."""

HEARTBEATS_PER_SECOND = 1000  # that one operator handles: each takes about 0.15 ms of a core
LEAST_SECONDS = 1.0


class HeartbeatInterval:
    """Seconds between two heartbeats of an agent.

    An agent keeps the interval that it was told last until its next heartbeat. So an interval that becomes shorter is not expected
    of the agents before each had the time to hear of it.

    Attributes:
        seconds: that agents are told now.
    """

    def __init__(self) -> None:
        self.seconds = LEAST_SECONDS
        self._longer = LEAST_SECONDS  # what some agents may keep
        self._longer_until = 0.0

    def count(self, agents: int, now: float) -> None:
        """Adapts the interval to how many agents there are."""
        before = self.seconds
        self.seconds = max(LEAST_SECONDS, agents / HEARTBEATS_PER_SECOND)
        if self.seconds < before:
            self._longer = self.longest(now, before)
            self._longer_until = now + self._longer

    def longest(self, now: float, told: float | None = None) -> float:
        """The longest interval that an agent may keep now, in seconds.

        Args:
            now: monotonic seconds.
            told: what agents are told; None: the interval of now.
        """
        seconds = self.seconds if told is None else told
        return max(seconds, self._longer) if now < self._longer_until else seconds
