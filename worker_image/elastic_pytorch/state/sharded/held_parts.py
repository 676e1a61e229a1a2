"""Which version of a sharded state a new group can continue from: the newest of which every shard lies in some pod's memory."""

from collections.abc import Sequence
from typing import NamedTuple

from elastic_pytorch.state_format.state_version import StateVersion


class Held(NamedTuple):
    """One rank's part of a state, in the memory of a pod.

    Attributes:
        version: of the state.
        part: the rank, in its group, that has committed it.
        shards: what each rank of that group has of the model, by rank: ranks with the same number have the same shards.
        holder: the rank in this group whose pod has it.
        own: whether it lies where that rank commits to; otherwise it is a copy for a peer.
        slot: of that memory.
    """

    version: StateVersion
    part: int
    shards: tuple[int, ...]
    holder: int
    own: bool
    slot: int


class Chosen(NamedTuple):
    """A version that is there as a whole.

    Attributes:
        version: of the state.
        world_size: of the group that has committed it.
        parts: where each part is read that is needed, by its rank in that group. Of equal parts, there is one.
        others: the parts that are there, too, and are not needed.
    """

    version: StateVersion
    world_size: int
    parts: dict[int, Held]
    others: dict[int, Held]


def choose(held: Sequence[Held]) -> Chosen | None:
    """Returns the newest version of which all shards are held; None: there is none.

    A part is read where it was committed rather than from a copy, as most often its rank needs it again.
    """
    by_version: dict[StateVersion, list[Held]] = {}
    for each in held:
        by_version.setdefault(each.version, []).append(each)
    for version in sorted(by_version, reverse=True):
        best: dict[int, Held] = {}
        for each in sorted(by_version[version], key=lambda each: (not each.own, each.holder)):
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
