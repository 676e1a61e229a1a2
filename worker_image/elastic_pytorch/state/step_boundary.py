"""Lets all ranks of a group agree on the step after which they stop, and on the commit interval.

Each rank learns of a change in another step. So it puts that into a number, which is all-reduced
while the next steps are computed, and all learn the outcome at the same boundary without a wait.
"""

import time
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist

from elastic_pytorch.state.commit_interval import CommitInterval

# Between two agreements, about: their cost stays far below a hundredth of the time.
ASK_SECONDS = 0.1
MAX_STEPS = 10_000  # between two agreements

# Waits for an all-reduce beside the training; RuntimeError: a peer is lost.
Wait = Callable[[], object]


def start_maximum(numbers: torch.Tensor, group: Any) -> Wait:
    """Starts to replace int64 numbers by their maximum over the ranks."""
    if not dist.is_initialized():
        return lambda: None
    work = dist.all_reduce(numbers, op=dist.ReduceOp.MAX, group=group, async_op=True)
    return work.wait


def any_rank(wants: bool, group: Any) -> bool:
    """Whether any of the group's ranks wants something. Collective."""
    start_maximum(wanted := torch.tensor([int(wants)]), group)()
    return bool(wanted)


class Agreement(NamedTuple):
    """Numbers of which the ranks `learn` the largest, at the same step."""

    own: Callable[[], Sequence[int]]
    learn: Callable[[Sequence[int]], None]


NO_AGREEMENT = Agreement(lambda: (), lambda _: None)


class Stepping(Protocol):
    def _complete_step(self) -> None:
        """Completes the step that is counted, if there is one."""


class Turns:
    """Makes a process complete the step of one State before the next State's begins.

    States that are committed in turns are refused: the process could only stop between two of them,
    with one a step behind the other.
    """

    def __init__(self) -> None:
        self._latest: weakref.ref[Stepping] | None = None  # committed last
        self._begun: weakref.WeakSet[Stepping] = weakref.WeakSet()  # committed in this group
        # With a step that may be incomplete. Strong: it may be a local variable of a function that
        # has returned.
        self._counted: Stepping | None = None

    def count(self, state: Stepping) -> None:
        self._counted = state

    def complete(self) -> None:
        """Completes the counted step before something else begins. Collective."""
        state, self._counted = self._counted, None
        if state is not None:
            state._complete_step()

    def take(self, state: Stepping) -> None:
        latest = self._latest() if self._latest is not None else None
        if latest is not state:
            if latest is not None and state in self._begun:
                raise RuntimeError(
                    "two States are committed in turns. Each step of a training ends with one "
                    "commit, so that a change of the group or a loss leaves nothing a step behind: "
                    "register both models with one State, as in State(folder, generator=g, "
                    "critic=c), and commit it once a step. Of two trainings, "
                    "close() the State of the one that is over"
                )
            self._latest = weakref.ref(state)
            self._begun.add(state)

    def end(self, state: Stepping) -> None:
        """Notes that a State is closed, or begins again in another group."""
        self._begun.discard(state)
        if self._latest is not None and self._latest() is state:
            self._latest = None
        if self._counted is state:
            self._counted = None


turns = Turns()  # of this process


class StepBoundary:
    """Decides at each step boundary of a group whether all its ranks stop there."""

    def __init__(
        self,
        start: Callable[[torch.Tensor], Wait],
        interval: CommitInterval,
        besides: Agreement = NO_AGREEMENT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start = start
        self._commits = interval
        self._besides = besides
        self._clock = clock
        # Whether to stop, the steps between two agreements and between two commits, and the rest:
        # as numbers, and the same memory as a tensor.
        self._numbers = array("q", (0, 1, 1, *besides.own()))
        self._tensor = torch.frombuffer(self._numbers, dtype=torch.int64)
        self._pending: Wait | None = None
        self._step = 0
        self._begun = 0
        self._begun_at = clock()
        self._next = 1
        self._between = 0

    @property
    def steps_are_long(self) -> bool:
        """Whether the ranks, all alike, agree after each step."""
        return self._between == 1

    def reached(self, wanted: Callable[[], bool]) -> bool:
        """Whether all ranks stop at this boundary. Every rank must call it after every step."""
        self._step += 1
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending()
            stop, interval, commit_steps, *besides = self._numbers
            if stop:
                return True
            self._besides.learn(besides)
            self._commits.agree(commit_steps)
            self._between = max(1, interval)
            self._next = self._begun + self._between
        if self._step >= self._next:
            self._begin(wanted())
        return False

    def meet(self) -> None:
        """Waits until all ranks have called it, after a boundary that all have reached."""
        self._start(self._tensor)()

    def _begin(self, wanted: bool) -> None:
        now = self._clock()
        steps, seconds = self._step - self._begun, now - self._begun_at
        interval = min(MAX_STEPS, int(ASK_SECONDS * steps / max(seconds, 1e-6)))
        self._begun, self._begun_at = self._step, now
        # All take the largest interval of any rank, so that the next agreement begins on all.
        numbers = (int(wanted), max(1, interval), self._commits.wanted(), *self._besides.own())
        self._numbers[:] = array("q", numbers)
        self._pending = self._start(self._tensor)
