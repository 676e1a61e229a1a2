"""What each event of a trace has cost a job, and what it would cost at the real rate. Pure.

The time from an event to the next one is that of the steps that were kept, each as long as one of the asked size takes, and four losses:

    seconds = kept * step + stopped + repeated * step + smaller + slower

`stopped` is the time between the last step of a group and the first of the next one, `repeated` the steps that are done again,
`smaller` what steps of a smaller group take longer, and `slower` all other slowness.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from elastic_pytorch_local.faults.steps import Step

from replay.jobs import JOBS, SIZE, Job
from replay.run import Run, SetUp
from replay.traces import NOTICE_SECONDS, RECLAIM, TRACES, Trace

STILL_STEPS = 3.0  # a group that takes no step for longer than these would take stands still


@dataclass(frozen=True, slots=True)
class Cost:
    """What one event has cost, in seconds as they were measured.

    Attributes:
        lost: all of it.
        stopped: when no group trained.
        set_up: the part of it in which processes of the next group did their set-up.
        repeated: of steps that are done again.
        small: for how long a smaller group trained. What that costs depends on the size.
        small_set_up: the part of it in which any process did its set-up.
        hidden_set_up: the time in which any process did so while a group of the asked size trained.
        slower: other slowness.
    """

    lost: float
    stopped: float
    set_up: float
    repeated: float
    small: float
    small_set_up: float
    hidden_set_up: float
    slower: float


@dataclass(frozen=True, slots=True)
class Account:
    """The account of a run.

    Attributes:
        ratio: the time of the steps that were kept, at the asked size, in the whole time.
        step_seconds: what a step of the asked size takes: the median.
        real: what each event would cost in reality, in seconds.
        real_ratio: the effective training time ratio at the real rate, where another node is free at once.
        scarce_ratio: the same, where the node is away for a time and there is no other.
    """

    ratio: float
    step_seconds: float
    costs: Sequence[Cost]
    real: Sequence[float]
    real_ratio: float
    scarce_ratio: float


def account(run: Run, away_seconds: float) -> Account:
    """Accounts for a run.

    Args:
        away_seconds: for how long a node is away in reality.

    Raises:
        ValueError: it has too few steps or events.
    """
    trace, job = TRACES[run.trace], JOBS[run.job]
    if not run.events:
        raise ValueError("no event was made")
    step = step_seconds(run)
    costs = [cost(run, step, at, end) for at, end in pairwise([*run.events, run.ended])]
    real = [real_seconds(each, job, trace, run.factor) for each in costs]
    away = away_seconds * without_a_node(job, trace)
    began, ended = _edge(run.steps, run.began, step), _edge(run.steps, run.ended, step)
    kept = ended[1].number - began[1].number
    return Account(
        ratio=kept * step / (ended[0] - began[0]),
        step_seconds=step,
        costs=costs,
        real=real,
        real_ratio=real_ratio(real, trace),
        scarce_ratio=real_ratio([seconds + away for seconds in real], trace),
    )


def step_seconds(run: Run) -> float:
    """What a step of the asked size takes."""
    found = [b.at - a.at for a, b in pairwise(run.steps) if a.group == b.group and b.world == SIZE]
    if not found:
        raise ValueError("no group of the asked size took two steps")
    return statistics.median(found)


def cost(run: Run, step: float, begin: float, end: float) -> Cost:
    """What was lost between two moments.

    Args:
        step: seconds of a step of the asked size.
        begin: an event.
        end: the next one, or the end of the trace.
    """
    (began, first), (ended, last) = _edge(run.steps, begin, step), _edge(run.steps, end, step)
    lost = ended - began - (last.number - first.number) * step
    stopped = set_up = repeated = small = small_set_up = hidden_set_up = extra = 0.0
    for a, b in pairwise([first, *(s for s in run.steps if first.at < s.at <= last.at)]):
        if a.group != b.group:
            stopped += b.at - max(a.at, began) - step
            repeated += (a.number - b.number + 1) * step
            set_up += _overlap(_set_ups_of_group(run, a, b), max(a.at, began), b.at)
        elif b.at - a.at > _still_seconds(b, step):
            stopped += b.at - max(a.at, began) - step
        elif b.world < SIZE:
            small += b.at - a.at
            extra += b.at - a.at - step
            small_set_up += _overlap(run.set_ups, a.at, b.at)
        else:
            hidden_set_up += _overlap(run.set_ups, a.at, b.at)
    if ended > last.at:  # it stands still at the end
        stopped += ended - max(last.at, began)
    slower = lost - stopped - repeated - extra
    return Cost(lost, stopped, set_up, repeated, small, small_set_up, hidden_set_up, slower)


def real_seconds(each: Cost, job: Job, trace: Trace, factor: float) -> float:
    """What an event would cost in reality: set-ups, and steps since a checkpoint, were shortened by a factor; the rest was not.

    A smaller group of the real job lacks one node of many. A newcomer whose set-up was over within the notice of a node's end would need
    longer than the notice, and the group would train without it in between, unless a spare is ready.
    """
    stopped = each.stopped + (factor - 1) * each.set_up
    repeated = each.repeated * (1 if job.library else factor)
    small = each.small + (factor - 1) * each.small_set_up
    if trace.kind == RECLAIM and not job.spares:
        small += max(0.0, factor * each.hidden_set_up - NOTICE_SECONDS)
    return max(0.0, stopped + repeated + small / trace.nodes + max(0.0, each.slower))


def without_a_node(job: Job, trace: Trace) -> float:
    """The part of the job's speed that is lost while a node is away, and there is no other."""
    if job.spares:
        return 0.0
    return 1.0 if job.fixed else 1 / trace.nodes


def real_ratio(real: Sequence[float], trace: Trace) -> float:
    """The effective training time ratio at the rate of a trace."""
    return max(0.0, 1 - statistics.fmean(real) / trace.interval_seconds)


def _edge(steps: Sequence[Step], at: float, step: float) -> tuple[float, Step]:
    """The last step before a moment, and its time; the moment itself if it stands still then."""
    before = [each for each in steps if each.at <= at]
    if not before:
        raise ValueError("it has taken no step before an event")
    last = before[-1]
    return (last.at if at - last.at <= _still_seconds(last, step) else at), last


def _still_seconds(last: Step, step: float) -> float:
    """After how long without a step a group stands still."""
    return STILL_STEPS * step * SIZE / last.world


def _set_ups_of_group(run: Run, a: Step, b: Step) -> list[SetUp]:
    """Those set-ups between two groups that the next one had to wait for: of its processes, begun after the last step."""
    workers = {joined.worker for joined in run.joined if a.at < joined.at <= b.at}
    return [each for each in run.set_ups if each.began >= a.at and each.ended <= b.at and each.worker in workers]


def _overlap(intervals: Iterable[SetUp], begin: float, end: float) -> float:
    """The time between two moments that intervals cover."""
    covered, reached = 0.0, begin
    for each in sorted(intervals):
        covered += max(0.0, min(each.ended, end) - max(each.began, reached))
        reached = max(reached, min(each.ended, end))
    return covered
