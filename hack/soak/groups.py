"""The groups that took the steps of a training. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from elastic_pytorch_local.faults.steps import Step


@dataclass(slots=True)
class Group:
    number: int
    world: int
    first: int
    last: int
    first_at: float
    last_at: float
    members: set[str] = field(default_factory=set)


def groups_of(steps: Iterable[Step]) -> list[Group]:
    found: dict[int, Group] = {}
    for step in steps:
        group = found.get(step.group)
        if group is None:
            at, number = step.at, step.number
            group = found[step.group] = Group(step.group, step.world, number, number, at, at)
        group.first, group.last = min(group.first, step.number), max(group.last, step.number)
        group.first_at, group.last_at = min(group.first_at, step.at), max(group.last_at, step.at)
        group.members.add(step.pod)
    return sorted(found.values(), key=lambda group: group.number)


def kept_seconds(groups: Sequence[Group]) -> float:
    """The time of the steps that no later group has repeated.

    A step has one moment, so that one step of each group has no known time: it counts like the
    group's others.
    """
    seconds, again_from = 0.0, inf
    for group in reversed(groups):
        pace = (group.last_at - group.first_at) / max(1, group.last - group.first)
        seconds += pace * max(0, min(group.last + 1, again_from) - group.first)
        again_from = min(again_from, group.first)
    return seconds
