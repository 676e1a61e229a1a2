"""The number of steps from one commit to the next: the least that keeps commits within a hundredth of the time. Standard library only."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

BUDGET = 0.01  # the share of the steps' time that commits may take
# A new interval is longer by this factor, so that the next measurement does not change it again.
HEADROOM = 1.2
LEAST_COMMITS = 3  # before an interval is chosen: the first ones may be slow for reasons that pass
COMMITS = 9  # in the median; most of them happen without a flush in progress
STEPS = 31
LONGEST = 10**9


def next_interval(steps: int, commit_seconds: float, step_seconds: float) -> int:
    """Returns the steps from one commit to the next, so that commits take at most a hundredth of the steps' time.

    An interval stays while commits use at most the budget and at least half of it.

    Args:
        steps: from one commit to the next, now.
        commit_seconds: for which a commit delays the training.
        step_seconds: of a step without a commit.
    """
    needed = commit_seconds / (BUDGET * max(step_seconds, 1e-9))
    if steps / 2 <= needed <= steps:
        return steps
    return max(1, min(LONGEST, math.ceil(HEADROOM * needed)))


class CommitInterval:
    """The interval of a training: measured by each rank, agreed by all, as all must commit the same steps.

    Args:
        every: the steps from one commit to the next; None: measured.
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
        self._caught_up_at: float | None = None
        self._behind = False  # a device computes the steps, later than this process asks for them
        self._asked_for = 0  # steps since it had caught up
        # Seconds by which commits have delayed this step; on a device, all steps since it had
        # caught up.
        self._held_up = 0.0
        self._commit = 0.0  # seconds by which the current commit has delayed the training

    def restart(self) -> None:
        """Begins with a new group: its ranks have measured different times, and have not agreed yet."""
        self.steps = self._every or 1
        self._step_began = self._caught_up_at = None
        self._commit = 0.0
        if self._commits:
            # What was restored has been written, into memory that was allocated for it.
            self._commits.pop()

    def due(self, step: int, committed: int) -> bool:
        """Whether to commit a step, given the step that was committed last."""
        return step % self._every == 0 if self._every else step - committed >= self.steps

    def end_step(self) -> None:
        """Records that a step is done, or asked for, and the next one begins."""
        self._asked_for += 1
        if self._behind:
            return
        now = self._clock()
        if self._step_began is not None:
            self._steps.append(now - self._step_began - self._held_up)
        self._step_began, self._held_up = now, 0.0

    def catch_up(self) -> None:
        """Records that the device has done all steps that were asked for.

        Their mean is what a step takes.
        """
        now = self._clock()
        if self._caught_up_at is not None and self._asked_for:
            mean = (now - self._caught_up_at - self._held_up) / self._asked_for
            self._steps.extend([mean] * min(self._asked_for, STEPS))
        if not self._behind:
            self._behind = True
            self._steps.clear()  # these were times of asking
        self._caught_up_at, self._asked_for, self._held_up = now, 0, 0.0

    @contextmanager
    def holding_up(self) -> Iterator[None]:
        """Measures the time for which the training waits for the current commit."""
        begun = self._clock()
        yield
        self._hold_up(self._clock() - begun)

    def end_commit(self, beside_seconds: float = 0.0) -> None:
        """Records that the current commit is done.

        Args:
            beside_seconds: for which it has delayed the training outside of `holding_up`.
        """
        self._hold_up(beside_seconds)
        self._commits.append(self._commit)
        self._commit = 0.0

    def _hold_up(self, seconds: float) -> None:
        self._held_up += seconds
        self._commit += seconds

    def wanted(self) -> int:
        """Returns the interval that this rank needs, 1 if it has measured nothing; the ranks agree on the largest one."""
        if self._every or len(self._commits) < LEAST_COMMITS or not self._steps:
            return self._every or 1
        return next_interval(self.steps, median(self._commits), median(self._steps))

    def __str__(self) -> str:
        """Describes the interval for the log."""
        text = f"commits every {self.steps} steps" if self.steps > 1 else "commits every step"
        if not self._commits or not self._steps:
            return text
        return f"{text}: one takes {1000 * median(self._commits):.3g} ms, a step {1000 * median(self._steps):.3g} ms"

    def agree(self, steps: int) -> None:
        """Takes the interval that all ranks have agreed on."""
        if not self._every:
            self.steps = steps
