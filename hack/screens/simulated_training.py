"""A training script that is none: which step a group would have come to, as a function of time."""

from dataclasses import dataclass, field

STEPS_PER_SECOND = 8.0
CHECKPOINT_STEPS = 40
START_SECONDS = 0.6  # from the last member's start to the first step


@dataclass(slots=True)
class Training:
    """What the workers of one job do together.

    Attributes:
        total: of the steps; None: it goes on and on.
        start_seconds: what the script takes to come to its first step.
        round: the newest round that somebody has taken up.
        first: that round's first step.
    """

    total: int | None = None
    start_seconds: float = START_SECONDS
    round: int = 0
    first: int = 1
    _size: int = 0
    _joined: set[str] = field(default_factory=set)
    _began_at: float | None = None
    _step: int = 0
    _reached: int | None = None

    def enter(self, worker: str, number: int, size: int, *, orderly: bool, now: float) -> None:
        """A worker starts in a round. The group trains once all have; where the last checkpoint was, unless nobody was lost."""
        if number > self.round:
            self._halt(now)
            saved = self._step // CHECKPOINT_STEPS * CHECKPOINT_STEPS
            self.round, self._size, self._joined = number, size, set()
            self.first = (self._step if orderly else saved) + 1
            self._reached = None
        if number == self.round:
            self._joined.add(worker)
            if len(self._joined) == size:
                self._began_at = now + self.start_seconds

    def leave(self, worker: str, now: float) -> None:
        """A worker is gone; the others wait for it in vain."""
        if worker in self._joined:
            self._halt(now)
            self._joined.discard(worker)

    def step(self, now: float) -> int | None:
        """The step that the round has come to; None before its first."""
        if self._began_at is None:
            return self._reached
        if now < self._began_at:
            return None
        reached = self.first + int((now - self._began_at) * STEPS_PER_SECOND)
        return min(reached, self.total) if self.total else reached

    def _halt(self, now: float) -> None:
        if self._began_at is not None:
            self._reached = self.step(now)
            self._step = self._reached if self._reached is not None else self.first - 1
            self._began_at = None
