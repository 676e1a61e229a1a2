"""What happened to a job, in the order of its times, and where its training went on after a fault. Pure."""

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from measure.records import Init, Record, Step

R = TypeVar("R", bound=Record)
PACE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Resumption:
    """Training has gone on in a new group."""

    since: float  # when the group before was disturbed
    last: Step  # of the group before
    init: Init  # of rank 0 of the new group
    step: Step  # the first of the new group

    @property
    def seconds(self) -> float:
        """From the disturbance to the new group's first step."""
        return self.step.at - self.since

    @property
    def pause(self) -> float:
        """Seconds between the two steps: for so long nothing was learned."""
        return self.step.at - self.last.at

    @property
    def steps_lost(self) -> int:
        return max(0, self.last.number - self.step.number + 1)


@dataclass(slots=True)
class StepsOfGroup:
    """The numbers of a group's first and last step, and when these were seen."""

    first: int
    last: int
    first_at: float
    last_at: float


class Timeline:
    """Records in the order of their times."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records: list[Record] = []
        self._known: set[Record] = set()
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Takes a record in, once: a log that is followed again begins again."""
        if record not in self._known:
            self._known.add(record)
            insort(self._records, record, key=lambda known: known.at)

    def until(self, moment: float) -> "Timeline":
        return Timeline(record for record in self._records if record.at <= moment)

    def every(self, kind: type[R], *, after: float = -inf, until: float = inf) -> list[R]:
        return [record for record in self._records if isinstance(record, kind) and after < record.at <= until]

    def first(self, kind: type[R]) -> R | None:
        return next(iter(self.every(kind)), None)

    def last(self, kind: type[R], *, before: float = inf) -> R | None:
        return next((r for r in reversed(self._records) if isinstance(r, kind) and r.at < before), None)

    def steps_of_group(self, *, after: float) -> list[Step]:
        """Returns the steps of the newest group after a moment, the newest first."""
        steps = []
        for record in reversed(self._records):
            if record.at <= after or (isinstance(record, Init) and record.rank == 0):
                break
            if isinstance(record, Step):
                steps.append(record)
        return steps

    def groups(self) -> list[StepsOfGroup]:
        """Returns the groups that have taken a step, the oldest first."""
        found: list[StepsOfGroup] = []
        new = True
        for record in self._records:
            if isinstance(record, Init) and record.rank == 0:
                new = True
            elif isinstance(record, Step) and new:
                found.append(StepsOfGroup(record.number, record.number, record.at, record.at))
                new = False
            elif isinstance(record, Step):
                found[-1].last, found[-1].last_at = record.number, record.at
        return found

    def steps_per_second(self) -> float | None:
        """Returns the pace of the newest group's last few seconds; None before it has taken two steps."""
        newest = self.last(Step)
        steps = self.steps_of_group(after=newest.at - PACE_SECONDS) if newest else []
        if not steps or steps[0].at == steps[-1].at:
            return None
        return (steps[0].number - steps[-1].number) / (steps[0].at - steps[-1].at)

    def resumption(self, since: float, world: int | None = None) -> Resumption | None:
        """Returns where training went on: in the first new group, or the first of a world size, that took a step."""
        init: Init | None = None
        for record in self._records:
            if isinstance(record, Init) and record.rank == 0 and record.at > since:
                init = record
            elif init and isinstance(record, Step) and record.pod == init.pod:
                if world in (None, record.world) and (last := self.last(Step, before=init.at)):
                    return Resumption(since, last, init, record)
                init = None
        return None


def kept_seconds(groups: Sequence[StepsOfGroup]) -> float:
    """Returns the time of the steps that no later group has done again.

    A step is seen at one moment, so that one step of each group has no known time: it counts like the others of its group.

    Args:
        groups: the oldest first.
    """
    seconds, again_from = 0.0, inf
    for group in reversed(groups):
        pace = (group.last_at - group.first_at) / max(1, group.last - group.first)
        seconds += pace * max(0, min(group.last + 1, again_from) - group.first)
        again_from = min(again_from, group.first)
    return seconds
