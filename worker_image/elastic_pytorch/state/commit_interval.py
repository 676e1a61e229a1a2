"""How many steps lie between two commits: as few as a hundredth of the steps' time pays for. Standard library only."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

BUDGET = 0.01  # the share of the steps' time that commits may take
HEADROOM = 1.2  # an interval that is chosen is longer by this, so that the next measurement does not change it again
LEAST_COMMITS = 3  # before an interval is chosen: the first ones may be slow for reasons that pass
COMMITS = 9  # that the median is taken of; most of them find no flush under way
STEPS = 31
LONGEST = 10**9


def next_interval(steps: int, commit_seconds: float, step_seconds: float) -> int:
    """The steps from one commit to the next, so that commits take at most a hundredth of the steps' time.

    An interval stays while it keeps to the budget and uses at least half of it.

    Args:
        steps: from one commit to the next, as it is now.
        commit_seconds: for which a commit holds up the training.
        step_seconds: of a step without a commit.
    """
    needed = commit_seconds / (BUDGET * max(step_seconds, 1e-9))
    if steps / 2 <= needed <= steps:
        return steps
    return max(1, min(LONGEST, math.ceil(HEADROOM * needed)))


class CommitInterval:
    """The interval of a training: measured by each rank, agreed by all, as all must commit the same steps.

    Args:
        every: the steps from one commit to the next; None: as the measurements have it.
        clock: seconds, from any zero.

    Attributes:
        steps: from one commit to the next, as agreed.
    """

    def __init__(self, every: int | None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._every = every
        self._clock = clock
        self.steps = every or 1
        self._commits: deque[float] = deque(maxlen=COMMITS)
        self._steps: deque[float] = deque(maxlen=STEPS)
        self._step_began: float | None = None
        self._held_up = 0.0  # for which this step's training was held up
        self._commit = 0.0  # for which the commit in hand has held it up

    def restart(self) -> None:
        """Begins with a group: its ranks have measured different things, and agree on nothing yet."""
        self.steps = self._every or 1
        self._step_began = None
        self._commit = 0.0

    def due(self, step: int, committed: int) -> bool:
        """Whether a step is to be committed, the one that was committed last being `committed`."""
        return step % self._every == 0 if self._every else step - committed >= self.steps

    def end_step(self) -> None:
        """Takes note that a step is done, and the next one begins."""
        now = self._clock()
        if self._step_began is not None:
            self._steps.append(now - self._step_began - self._held_up)
        self._step_began, self._held_up = now, 0.0

    @contextmanager
    def holding_up(self) -> Iterator[None]:
        """Measures what is done for the commit in hand while the training waits."""
        begun = self._clock()
        yield
        seconds = self._clock() - begun
        self._held_up += seconds
        self._commit += seconds

    def end_commit(self, beside_seconds: float = 0.0) -> None:
        """Takes note that the commit in hand is done.

        Args:
            beside_seconds: for which it has held up the training elsewhere than in `holding_up`.
        """
        self._held_up += beside_seconds
        self._commit += beside_seconds
        self._commits.append(self._commit)
        self._commit = 0.0

    def wanted(self) -> int:
        """The interval that this rank needs, 1 if it has measured nothing; the largest one of all ranks is to be agreed on."""
        if self._every or len(self._commits) < LEAST_COMMITS or not self._steps:
            return self._every or 1
        return next_interval(self.steps, median(self._commits), median(self._steps))

    def __str__(self) -> str:
        """For people."""
        text = f"commits every {self.steps} steps" if self.steps > 1 else "commits every step"
        if not self._commits or not self._steps:
            return text
        return f"{text}: one takes {1000 * median(self._commits):.3g} ms, a step {1000 * median(self._steps):.3g} ms"

    def agree(self, steps: int) -> None:
        """Takes what all ranks have agreed on."""
        if not self._every:
            self.steps = steps
