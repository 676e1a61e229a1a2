"""The newest version of a sharded state that pods' memory has whole."""

from collections.abc import Sequence
from typing import NamedTuple

from elastic_pytorch.state_format.state_version import StateVersion


class Held(NamedTuple):
    """One rank's part of a state, in the memory of a pod."""

    version: StateVersion
    # Unique: two groups that do not know of each other may use the same versions.
    group: int
    part: int  # the rank that has committed it, in its group
    shards: tuple[int, ...]  # by rank of that group; the same number for the same shards
    holder: int  # the rank in this group whose pod has it
    own: bool  # committed there, and no copy for a peer
    slot: int


class Chosen(NamedTuple):
    version: StateVersion
    world_size: int  # of the group that has committed it
    parts: dict[int, Held]  # the needed ones, by rank in that group
    others: dict[int, Held]  # held, and not needed

    @property
    def all_own(self) -> bool:
        """Whether no pod that had a needed part is gone."""
        return all(each.own for each in self.parts.values())


def choose(held: Sequence[Held]) -> Chosen | None:
    """Returns the newest version of which all shards are held.

    A part is read where it was committed rather than from a copy, as most often its rank needs it
    again.
    """
    alike: dict[tuple[StateVersion, int], list[Held]] = {}
    for each in held:
        alike.setdefault((each.version, each.group), []).append(each)
    for version, group in sorted(alike, reverse=True):
        best: dict[int, Held] = {}
        for each in sorted(alike[version, group], key=lambda each: (not each.own, each.holder)):
            best.setdefault(each.part, each)
        shards = next(iter(best.values())).shards
        parts: dict[int, Held] = {}  # by what they have of the model, then by rank
        for part in sorted(best):
            parts.setdefault(shards[part], best[part])
        if parts.keys() >= set(shards):
            needed = {each.part: each for each in parts.values()}
            others = {part: each for part, each in best.items() if part not in needed}
            return Chosen(version, len(shards), needed, others)
    return None
