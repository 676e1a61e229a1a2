"""What a fault has cost a training, by the steps that its scripts have reported, and by the status of its job. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from elastic_pytorch_client.reading.job_view import JobView

from elastic_pytorch_local.faults.steps import Step

STILL_SECONDS = 0.25  # a group that takes no step for longer stands still


@dataclass(frozen=True, slots=True)
class Change:
    last: Step  # of the group before
    first: Step  # of the next group

    @property
    def pause_seconds(self) -> float:
        """The time between the two steps: for so long nothing was learned."""
        return self.first.at - self.last.at

    @property
    def repeated(self) -> int:
        """The steps that the next group does again."""
        return max(0, self.last.number - self.first.number + 1)


def changes(steps: Iterable[Step], since: float) -> list[Change]:
    """The changes of the group from a moment on, seconds since the epoch.

    What a group tells after a later one has begun to train is left out. A group that trained by
    then is none of the later ones.
    """
    found, last = list[Change](), None
    for step in steps:
        if last is not None and step.group < last.group:
            continue
        if last is not None and step.group > last.group and step.at > since:
            found.append(Change(last, step))
        last = step
    return found


def trains_quietly(steps: Sequence[Step], world: int, number: int) -> bool:
    """Whether the last steps of rank 0, by their times, are of one group of a size."""
    last = steps[-number:]
    return len(last) == number and all(
        (step.world, step.group) == (world, last[-1].group) for step in last
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a fault has cost; times in seconds, as the scripts reported their steps."""

    again: float | None  # until the first step of another group; None: there was none
    pause: float  # the longest time between two steps, until a group of the wanted size trains
    stopped: float  # all times between two steps that are longer than STILL_SECONDS, until then
    # Until the first step of another group of the wanted size; None: there was none.
    whole: float | None
    repeated: int  # steps that were done again until then
    round: int = 0  # 0: its status is not known
    rounds: int = 0
    failures: int = 0


def outcome(
    steps: Sequence[Step],
    at: float,
    wanted: int,
    before: JobView | None = None,
    after: JobView | None = None,
) -> Outcome | None:
    """What a fault has cost that was made at a time, seconds since the epoch; None before there was a step on both sides of it.

    The steps are of rank 0, by their times, and `wanted` is the processes of the whole group. The
    job is as its status had it before, and when it was whole again.
    """
    earlier, later = (
        [step for step in steps if step.at <= at],
        [step for step in steps if step.at > at],
    )
    if not earlier or not later:
        return None
    group = earlier[-1].group
    others = [index for index, step in enumerate(later) if step.group > group]
    end = next((index for index in others if later[index].world == wanted), None)
    course = [earlier[-1], *(later if end is None else later[: end + 1])]
    gaps = [b.at - a.at for a, b in pairwise(course)]
    found = Outcome(
        again=round(later[others[0]].at - at, 3) if others else None,
        pause=round(max(gaps), 3),
        stopped=round(sum(gap for gap in gaps if gap > STILL_SECONDS), 3),
        whole=None if end is None else round(later[end].at - at, 3),
        repeated=sum(change.repeated for change in changes(course, at)),
    )
    return found if before is None or after is None else _with_status(found, before, after)


def _with_status(found: Outcome, before: JobView, after: JobView) -> Outcome:
    return replace(
        found,
        round=after.round,
        rounds=after.round - before.round,
        failures=after.failures - before.failures,
    )
