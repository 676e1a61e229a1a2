"""What a fault has cost a training, by its recorded steps and its job's status. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_local.faults.steps import Step, changes

STILL_SECONDS = 0.25  # a longer time without a step is a standstill


def trains_quietly(steps: Sequence[Step], world: int, number: int) -> bool:
    """Whether the last steps of rank 0, by their times, are of one group of a size."""
    last = steps[-number:]
    group = last[-1].group if last else 0
    return len(last) == number and all((s.world, s.group) == (world, group) for s in last)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Times are in seconds, between recorded steps."""

    again: float | None  # until the first step of another group; None: there was none
    pause: float  # the longest time between two steps, until a group of the wanted size trains
    stopped: float  # the sum of such times above STILL_SECONDS
    whole: float | None  # until another group of the wanted size takes a step; None: none did
    repeated: int  # steps
    rounds: int = 0  # 0 without a status
    failures: int = 0


def outcome(
    steps: Sequence[Step],
    at: float,
    wanted: int,
    before: JobView | None = None,
    after: JobView | None = None,
) -> Outcome | None:
    """What a fault at a time has cost, in seconds since the epoch; None without steps around it.

    The steps are rank 0's, by their times, and `wanted` is the group's number of processes.
    `after` is the job's status once it was whole again.
    """
    earlier = [step for step in steps if step.at <= at]
    later = [step for step in steps if step.at > at]
    if not earlier or not later:
        return None
    group = earlier[-1].group
    others = [index for index, step in enumerate(later) if step.group > group]
    end = next((index for index in others if later[index].world == wanted), None)
    watched = [earlier[-1], *(later if end is None else later[: end + 1])]
    gaps = [b.at - a.at for a, b in pairwise(watched)]
    rounds, failures = 0, 0
    if before is not None and after is not None:
        rounds, failures = after.round - before.round, after.failures - before.failures
    return Outcome(
        again=round(later[others[0]].at - at, 3) if others else None,
        pause=round(max(gaps), 3),
        stopped=round(sum(gap for gap in gaps if gap > STILL_SECONDS), 3),
        whole=None if end is None else round(later[end].at - at, 3),
        repeated=sum(change.repeated for change in changes(watched, at)),
        rounds=rounds,
        failures=failures,
    )
