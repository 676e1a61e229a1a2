"""Which checkpoints stay when a new one is there: the newest few, and milestones.

The versions alone decide, so any rank decides alike.

Checkpoints are written when it is time, and hardly ever at a multiple of a number of steps. So the
milestone of a multiple is the first checkpoint that was written at that step or behind it. One that
is behind several multiples is the milestone of all of them.

A group that restores an older checkpoint goes back, and may pass a multiple again. Then there may
be two milestones of it. One is never given up for the other, as the versions do not tell from which
checkpoint a group went on.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from elastic_pytorch.state_format.state_version import StateVersion


class Retention(NamedTuple):
    newest: int  # how many checkpoints
    every_steps: int  # from one milestone to the next


Keep = int | Retention  # a number: of the newest checkpoints, and no milestone


def what_to_keep(keep: int, keep_every_steps: int | None) -> Keep:
    """Returns what a script wants to be kept.

    Raises:
        ValueError: it cannot be.
    """
    if keep_every_steps is None:
        return keep
    if type(keep_every_steps) is not int or keep_every_steps < 1:
        raise ValueError(
            "keep_every_steps must be a whole number of steps, at least 1, or None, "
            f"not {keep_every_steps!r}"
        )
    return Retention(keep, keep_every_steps)


def parse_keep(told: object) -> Keep:
    """Returns what a message in JSON wants to be kept.

    Raises:
        ValueError: it means nothing.
    """
    numbers: list[Any] = told if isinstance(told, list) else [told]
    if all(type(number) is int and number >= 1 for number in numbers):
        if told is not numbers:
            newest: int = numbers[0]
            return newest
        if len(numbers) == 2:
            return Retention(*numbers)
    raise ValueError("not what to keep")


def milestones(versions: Iterable[StateVersion], every_steps: int) -> set[StateVersion]:
    """Returns those that no older one of the same stretch between two multiples of `every_steps` comes before.

    It does not change what is a milestone if others are deleted, or newer versions are written.
    """
    least: dict[int, int] = {}  # step of a version, by the number of its multiple
    found = set()
    for version in sorted(versions):
        multiple = version.step // every_steps
        if multiple and version.step < least.get(multiple, version.step + 1):
            least[multiple] = version.step
            found.add(version)
    return found


def surplus(
    versions: Iterable[StateVersion], written: StateVersion, keep: Keep
) -> set[StateVersion]:
    """Returns the versions to delete.

    Those larger than the one just written, which is kept, do not count, and stay.

    Raises:
        ValueError: it would keep nothing.
    """
    newest, every_steps = keep if isinstance(keep, Retention) else (keep, None)
    if newest < 1:
        raise ValueError(f"keep is {newest}: at least one checkpoint is kept")
    older = sorted(version for version in set(versions) if version < written)
    doomed = set(older[: max(0, len(older) - newest + 1)])
    return doomed if every_steps is None else doomed - milestones(older, every_steps)
