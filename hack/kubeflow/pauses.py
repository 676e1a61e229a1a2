"""What a loss has cost, read from the steps that the job's own script has told. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from replay.run import Step

STILL_SECONDS = 0.25  # five steps: a group that takes none for longer stands still


@dataclass(frozen=True, slots=True)
class Figures:
    """A trial in numbers.

    Attributes:
        pause: seconds, the longest between two steps until all workers train again.
        stopped: seconds, all times without a step that are longer than STILL_SECONDS.
        whole: seconds from the loss to the first step of the whole group.
        repeated: steps that were done again.
    """

    pause: float
    stopped: float
    whole: float
    repeated: int


def figures(steps: Sequence[Step], at: float, size: int) -> Figures | None:
    """Returns what a loss has cost; None before a group of all workers, formed after it, has taken a step.

    Args:
        steps: of rank 0 of each group, by their times.
        at: when the pod was deleted, or the size changed, seconds since the epoch.
        size: of the whole group.
    """
    before = [step for step in steps if step.at <= at]
    if not before:
        return None
    last = before[-1]
    after = steps[len(before) :]
    end = next((i for i, step in enumerate(after) if step.world == size and step.group > last.group), None)
    if end is None:
        return None
    course = [last, *after[: end + 1]]
    gaps = [b.at - a.at for a, b in pairwise(course)]
    return Figures(
        pause=round(max(gaps), 3),
        stopped=round(sum(gap for gap in gaps if gap > STILL_SECONDS), 3),
        whole=round(course[-1].at - at, 3),
        repeated=sum(max(0, a.number + 1 - b.number) for a, b in pairwise(course) if a.group != b.group),
    )
