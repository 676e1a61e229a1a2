"""Which rank keeps a copy of another one's shards."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class RankLocation(NamedTuple):
    unit: int  # whose pods leave the group together
    pod: int
    node: int
    shards: int  # the same number for the same shards


def buddies(places: Sequence[RankLocation]) -> list[int | None]:
    """Returns the rank to which each sends a copy of its shards; None: another unit has them.

    It is also None if there is no other pod. Each rank receives one copy at most. The units are
    sorted by node, and each sends to another one at a distance of the most units that a node has:
    it is on another node, unless a single node has more than half of the units. In a group of one
    unit the pods do so among themselves: the group goes on when the lost pod has been replaced.
    """
    several_units = len({place.unit for place in places}) > 1
    lost_together = [place.unit if several_units else place.pod for place in places]
    nodes: dict[int, set[int]] = {}
    ranks: dict[int, list[int]] = {}
    alike: dict[int, set[int]] = {}  # by shards
    for rank, (one, place) in enumerate(zip(lost_together, places, strict=True)):
        nodes.setdefault(one, set()).add(place.node)
        ranks.setdefault(one, []).append(rank)
        alike.setdefault(place.shards, set()).add(one)
    if len(nodes) < 2:
        return [None] * len(places)
    order = sorted(nodes, key=lambda one: (min(nodes[one]), one))
    first_nodes = Counter(min(each) for each in nodes.values())
    distance = max(first_nodes.values()) % len(order) or 1
    follows = {one: order[(at + distance) % len(order)] for at, one in enumerate(order)}

    def target(rank: int) -> int | None:
        one = lost_together[rank]
        others = alike[places[rank].shards] - {one}
        if any(nodes[one].isdisjoint(nodes[other]) for other in others):
            return None
        if others and not nodes[one].isdisjoint(nodes[follows[one]]):
            return None  # a copy would be as near
        return ranks[follows[one]][ranks[one].index(rank)]

    return [target(rank) for rank in range(len(places))]


def receivers_of_leaving(
    leaves: Sequence[bool], places: Sequence[RankLocation], copies: Sequence[int | None] = ()
) -> dict[int, int] | None:
    """Returns the rank to which each rank of a leaving pod sends its shards.

    None: the ranks that stay cannot take them all.
    """
    staying = [rank for rank, leaving in enumerate(leaves) if not leaving]
    kept = {places[rank].shards for rank in staying}
    kept |= {
        places[rank].shards
        for rank, holder in enumerate(copies)
        if holder is not None and not leaves[holder]
    }
    sending = []
    for rank, leaving in enumerate(leaves):
        if leaving and places[rank].shards not in kept:
            kept.add(places[rank].shards)
            sending.append(rank)
    return dict(zip(sending, staying, strict=False)) if len(sending) <= len(staying) else None
