"""Which checkpoints stay when a new one is there: the newest few, and milestones.

The versions alone decide, so all ranks decide alike. A multiple's milestone is the first checkpoint
at or behind that step. After a group has restored an older checkpoint, a multiple may have two.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from elastic_pytorch.state_format.state_version import StateVersion


class Retention(NamedTuple):
    newest: int
    every_steps: int  # between milestones


Keep = int | Retention  # a number: of the newest checkpoints, without milestones


def what_to_keep(keep: int, keep_every_steps: int | None) -> Keep:
    if keep_every_steps is None:
        return keep
    if type(keep_every_steps) is not int or keep_every_steps < 1:
        raise ValueError(
            "keep_every_steps must be a whole number of steps, at least 1, or None, "
            f"not {keep_every_steps!r}"
        )
    return Retention(keep, keep_every_steps)


def parse_keep(value: object) -> Keep:
    numbers: list[Any] = value if isinstance(value, list) else [value]
    if all(type(number) is int and number >= 1 for number in numbers):
        if value is not numbers:
            newest: int = numbers[0]
            return newest
        if len(numbers) == 2:
            return Retention(*numbers)
    raise ValueError("not what to keep")


def milestones(versions: Iterable[StateVersion], every_steps: int) -> set[StateVersion]:
    """Returns each version that no older one of the same stretch between multiples precedes.

    Milestones stay milestones if others are deleted, or newer versions are written.
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
    """Returns the versions to delete; those larger than the one just written do not count."""
    newest, every_steps = keep if isinstance(keep, Retention) else (keep, None)
    older = sorted(version for version in set(versions) if version < written)
    doomed = set(older[: max(0, len(older) - newest + 1)])
    return doomed if every_steps is None else doomed - milestones(older, every_steps)
