"""The number of steps from one commit to the next. Standard library only."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

BUDGET = 0.01  # the share of the steps' time that commits may take
# Makes a new interval longer, so that the next measurement does not change it again.
HEADROOM = 1.2
LEAST_COMMITS = 3  # before an interval is chosen, as the first ones may be slower
COMMITS = 9  # in the median; most of them happen without a flush in progress
STEPS = 31
LONGEST = 10**9


def next_interval(steps: int, commit_seconds: float, step_seconds: float) -> int:
    """Returns the smallest interval with which commits take at most `BUDGET` of the steps' time.

    An interval stays while commits use at most the budget and at least half of it.
    """
    needed = commit_seconds / (BUDGET * max(step_seconds, 1e-9))
    if steps / 2 <= needed <= steps:
        return steps
    return max(1, min(LONGEST, math.ceil(HEADROOM * needed)))


class CommitInterval:
    """The interval between two commits, `steps`: given, or measured and agreed by all ranks."""

    def __init__(self, every: int | None, clock: Callable[[], float] = time.perf_counter) -> None:
        self._every = every
        self._clock = clock
        self.steps = every or 1
        self._commits: deque[float] = deque(maxlen=COMMITS)
        self._steps: deque[float] = deque(maxlen=STEPS)
        self._step_began: float | None = None
        self._caught_up_at: float | None = None
        self._behind = False  # a device computes the steps later than this process issues them
        self._issued = 0  # steps since the device caught up
        # By which commits have delayed this step, or on a device the steps since it caught up.
        self._delay_seconds = 0.0
        self._commit_seconds = 0.0  # by which the current commit has delayed the training

    def restart(self) -> None:
        self.steps = self._every or 1
        self._step_began = self._caught_up_at = None
        self._commit_seconds = 0.0
        if self._commits:
            # The commit of the restored state, for which memory had to be allocated.
            self._commits.pop()

    def due(self, step: int, committed: int) -> bool:
        return step % self._every == 0 if self._every else step - committed >= self.steps

    def end_step(self) -> None:
        self._issued += 1
        if self._behind:
            return
        now = self._clock()
        if self._step_began is not None:
            self._steps.append(now - self._step_began - self._delay_seconds)
        self._step_began, self._delay_seconds = now, 0.0

    def catch_up(self) -> None:
        """Records that the device has done all issued steps, whose mean is the time of a step."""
        now = self._clock()
        if self._caught_up_at is not None and self._issued:
            mean = (now - self._caught_up_at - self._delay_seconds) / self._issued
            self._steps.extend([mean] * min(self._issued, STEPS))
        if not self._behind:
            self._behind = True
            self._steps.clear()  # these were the times of issuing steps
        self._caught_up_at, self._issued, self._delay_seconds = now, 0, 0.0

    @contextmanager
    def holding_up(self) -> Iterator[None]:
        begun = self._clock()
        yield
        self._hold_up(self._clock() - begun)

    def end_commit(self, beside_seconds: float = 0.0) -> None:
        self._hold_up(beside_seconds)
        self._commits.append(self._commit_seconds)
        self._commit_seconds = 0.0

    def _hold_up(self, seconds: float) -> None:
        self._delay_seconds += seconds
        self._commit_seconds += seconds

    def wanted(self) -> int:
        if self._every or len(self._commits) < LEAST_COMMITS or not self._steps:
            return self._every or 1
        return next_interval(self.steps, median(self._commits), median(self._steps))

    def __str__(self) -> str:
        text = f"commits every {self.steps} steps" if self.steps > 1 else "commits every step"
        if not self._commits or not self._steps:
            return text
        commit_ms, step_ms = 1000 * median(self._commits), 1000 * median(self._steps)
        return f"{text}: one takes {commit_ms:.3g} ms, a step {step_ms:.3g} ms"

    def agree(self, steps: int) -> None:
        if not self._every:
            self.steps = steps
