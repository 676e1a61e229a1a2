"""The changes of a training's group, by its recorded steps. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from elastic_pytorch_local.faults.steps import Step


@dataclass(frozen=True, slots=True)
class Change:
    last: Step  # of the group before
    first: Step  # of the next group

    @property
    def pause_seconds(self) -> float:
        return self.first.at - self.last.at

    @property
    def repeated(self) -> int:
        return max(0, self.last.number - self.first.number + 1)


def changes(steps: Iterable[Step], since: float) -> list[Change]:
    """The changes of the group since a moment, in seconds since the epoch.

    Steps of a group after the first step of a later one do not count.
    """
    found, last = list[Change](), None
    for step in steps:
        if last is not None and step.group < last.group:
            continue
        if last is not None and step.group > last.group and step.at > since:
            found.append(Change(last, step))
        last = step
    return found
