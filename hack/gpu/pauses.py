"""How long a member stood still while its group changed, from the records of its steps. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import nan
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Pause:
    """The cost of a change to a member."""

    seconds: float  # from the begin of its last step in the old group to its first in the new one
    again: int
    kept: bool
    step_seconds: float  # the median in the old group; a pause includes a step


def steps_after(
    steps: Sequence[Mapping[str, Any]], before: str, world: int
) -> Sequence[Mapping[str, Any]]:
    """A member's steps after a group, from the first one in a group of a size."""
    names = [step["group"] for step in steps]
    later = steps[len(names) - names[::-1].index(before) if before in names else 0 :]
    first = next((place for place, step in enumerate(later) if step["world"] == world), len(later))
    return later[first:]


def pause_of(steps: Sequence[Mapping[str, Any]], before: str, world: int) -> Pause | None:
    """The pause of a member; None: it has not taken a step in such a group yet.

    Args:
        steps: in order: `at`, `pid`, `step`, `group` (a name in that process) and `world`.
        world: of the group that is waited for; intermediate groups of other sizes count as pause.
    """
    old = [step for step in steps if step["group"] == before]
    later = steps_after(steps, before, world)
    if not later:
        return None
    new = later[0]
    done = max(step["step"] for step in old) - 1  # the last one need not have ended
    paces = [second["at"] - first["at"] for first, second in pairwise(old)]
    step_seconds = median(paces) if paces else nan
    return Pause(
        new["at"] - old[-1]["at"],
        max(0, done - new["step"] + 1),
        new["pid"] == old[-1]["pid"],
        step_seconds,
    )
