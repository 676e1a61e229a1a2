"""How many samples a group trains on in a second, measured while its size stays the same.

A round is measured in windows. What comes before the first window is the warm-up: compilers, caches and loaders make the first steps
slower, or faster, than those that follow. The spread of the windows says how sure their mean is. Windows are long against what disturbs
their ends, one step or one heartbeat, so that they are nearly independent of each other.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import fsum, sqrt
from statistics import fmean
from typing import NamedTuple

from elastic_pytorch_operator.model.observed import AgentState, AgentView
from elastic_pytorch_operator.model.round import Round

WARM_UP_SECONDS = 20.0
WARM_UP_STEPS = 10
WINDOW_SECONDS = 10.0
WINDOW_HEARTBEATS = 10
WINDOW_STEPS = 5
MIN_WINDOWS = 6
MAX_WINDOWS = 30
LOOKS = (MIN_WINDOWS, 12, MAX_WINDOWS)  # the numbers of windows after which a decision looks at the measurement


class Throughput(NamedTuple):
    """The speed of a group of one size.

    Attributes:
        workers: of the group.
        samples_per_second: the mean of its windows.
        error: the standard error of that.
        at: when it was last measured, monotonic seconds.
    """

    workers: int
    samples_per_second: float
    error: float
    at: float


class Mark(NamedTuple):
    """A step of a group, and when it was reported, monotonic seconds."""

    step: int
    at: float
    samples_per_step: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """What has been measured of a group since it has its present size.

    Attributes:
        round: the number of the round.
        workers: its size.
        first: the first step that was seen of the round.
        begin: where the present window begins; None: the round warms up.
        rates: samples per second in the last windows, also of rounds before this one, if they had the same size.
        at: when the last window ended, monotonic seconds.
    """

    round: int = 0
    workers: int = 0
    first: Mark | None = None
    begin: Mark | None = None
    rates: tuple[float, ...] = ()
    at: float = 0.0

    @property
    def due(self) -> bool:
        """Whether a decision may look at it. A look at every window would find a chance result sooner or later."""
        return len(self.rates) in LOOKS

    @property
    def full(self) -> bool:
        """Whether more windows would tell no more."""
        return len(self.rates) >= MAX_WINDOWS

    @property
    def throughput(self) -> Throughput | None:
        """What has been measured; None: not long enough to be true."""
        windows = len(self.rates)
        if windows < MIN_WINDOWS:
            return None
        mean = fmean(self.rates)
        # statistics.stdev adds exact fractions, which takes twenty times as long; this is computed in each plan.
        variance = fsum((rate - mean) ** 2 for rate in self.rates) / (windows - 1)
        return Throughput(self.workers, mean, sqrt(variance / windows), self.at)


def newest_mark(round_: Round | None, agents: Iterable[AgentView]) -> Mark | None:
    """The newest step of a round; None if its script does not report steps and `samples_per_step`."""
    if round_ is None:
        return None
    newest: Mark | None = None
    for agent in agents:
        progress = agent.progress
        if agent.round != round_.number or agent.state is not AgentState.RUNNING or agent.worker not in round_.ranks:
            continue
        if progress.step is None or not progress.samples_per_step:
            continue
        mark = Mark(progress.step, agent.progressed_at, progress.samples_per_step)
        if newest is None or (mark.step, -mark.at) > (newest.step, -newest.at):
            newest = mark
    return newest


def advance_measurement(known: Measurement, round_: Round | None, mark: Mark | None, heartbeat_seconds: float) -> Measurement:
    """Goes on measuring.

    Args:
        known: what has been measured.
        round_: the current one.
        mark: its newest step; None: it has reported none.
        heartbeat_seconds: between two heartbeats of an agent.
    """
    if round_ is None or round_.size == 0:
        return Measurement()
    if known.round != round_.number:
        same = known.workers == round_.size
        known = Measurement(round_.number, round_.size, rates=known.rates if same else (), at=known.at if same else 0.0)
    if mark is None:
        return known
    if known.first is None:
        return replace(known, first=mark)
    if known.begin is None:
        warm = mark.at - known.first.at >= WARM_UP_SECONDS and mark.step - known.first.step >= WARM_UP_STEPS
        return replace(known, begin=mark) if warm else known
    if mark.samples_per_step != known.begin.samples_per_step:
        return replace(known, begin=mark)
    steps, seconds = mark.step - known.begin.step, mark.at - known.begin.at
    if steps < WINDOW_STEPS or seconds < max(WINDOW_SECONDS, WINDOW_HEARTBEATS * heartbeat_seconds):
        return known
    rates = (*known.rates, steps * mark.samples_per_step / seconds)[-MAX_WINDOWS:]
    return replace(known, begin=mark, rates=rates, at=mark.at)
