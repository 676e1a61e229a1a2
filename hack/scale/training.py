"""A training script without training: the step that a group would have reached, as a function of time."""

from dataclasses import dataclass, field

STEPS_PER_SECOND = 8.0
CHECKPOINT_STEPS = 40
START_SECONDS = 0.6  # from the last member's start to the first step


@dataclass(slots=True)
class Training:
    """The workers of one job, whose training does not end.

    Attributes:
        round: the newest round that a worker has joined.
        first: that round's first step.
    """

    round: int = 0
    first: int = 1
    _joined: set[str] = field(default_factory=set)
    _began_at: float | None = None
    _last: int = 0  # of the rounds before
    _reached: int | None = None  # in this round, which was interrupted

    def join(self, worker: str, number: int, size: int, *, orderly: bool, now: float) -> bool:
        """A worker starts in a round; returns whether it was the last, so that the group trains after `START_SECONDS`.

        It goes on from the last checkpoint, in order from the last step.
        """
        if number > self.round:
            self._halt(now)
            self.first = (self._last if orderly else self._last // CHECKPOINT_STEPS * CHECKPOINT_STEPS) + 1
            self.round, self._joined, self._reached = number, set(), None
        if number == self.round:
            self._joined.add(worker)
            if len(self._joined) == size:
                self._began_at = now + START_SECONDS
                return True
        return False

    def leave(self, worker: str, now: float) -> None:
        """A worker ends or is lost: the others make no more steps in this round."""
        if worker in self._joined:
            self._halt(now)
            self._joined.discard(worker)

    def step(self, now: float) -> int | None:
        """Returns the step that the round has reached; None before its first."""
        if self._began_at is None:
            return self._reached
        if now < self._began_at:
            return None
        return self.first + int((now - self._began_at) * STEPS_PER_SECOND)

    def _halt(self, now: float) -> None:
        if self._began_at is not None:
            self._reached = self.step(now)
            self._last = self.first - 1 if self._reached is None else self._reached
            self._began_at = None
