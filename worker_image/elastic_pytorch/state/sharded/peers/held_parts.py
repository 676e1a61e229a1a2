"""Which version of a sharded state a new group can continue from: the newest of which every shard lies in some pod's memory."""

from collections.abc import Sequence
from typing import NamedTuple

from elastic_pytorch.state_format.state_version import StateVersion


class Held(NamedTuple):
    """One rank's part of a state, in the memory of a pod."""

    version: StateVersion
    # A number that no other group has: groups that know nothing of each other may give their
    # states the same versions.
    group: int
    part: int  # the rank, in its group, that has committed it
    # By rank of that group: ranks with the same number have the same shards.
    shards: tuple[int, ...]
    holder: int  # the rank in this group whose pod has it
    own: bool  # whether it lies where that rank commits to; otherwise it is a copy for a peer
    slot: int


class Chosen(NamedTuple):
    version: StateVersion
    world_size: int  # of the group that has committed it
    parts: dict[int, Held]  # the needed parts, by rank in that group
    others: dict[int, Held]  # parts that are there, too, and not needed

    @property
    def all_own(self) -> bool:
        """Whether each part that is needed lies where it was committed: so no pod is gone that had one."""
        return all(each.own for each in self.parts.values())


def choose(held: Sequence[Held]) -> Chosen | None:
    """Returns the newest version of which all shards are held; None: there is none.

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
