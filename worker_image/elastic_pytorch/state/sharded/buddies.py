"""Which rank keeps a copy of another one's shards: one of another pod, on another node where there is one."""

from collections.abc import Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """Where a rank is, and what it has.

    Attributes:
        pod: the number of its pod.
        node: a number of the node that the pod is on.
        shards: of the model: ranks with the same number have the same shards.
    """

    pod: int
    node: int
    shards: int


def buddies(places: Sequence[Place]) -> list[int | None]:
    """Returns to which rank each rank sends a copy of its shards; None: a rank of another pod has them, or there is no other pod.

    Each rank receives one copy at most. The pods are sorted by node, and each sends to the one that follows at a distance of the most
    pods that a node has: that one is on another node, unless a single node has more than half of the pods.
    """
    pods = sorted({(place.node, place.pod) for place in places})
    if len(pods) < 2:
        return [None] * len(places)
    nodes = [node for node, _ in pods]
    distance = max(nodes.count(node) for node in set(nodes)) % len(pods) or 1
    number = {pod: at for at, (_, pod) in enumerate(pods)}
    ranks: dict[int, list[int]] = {}
    for rank, place in enumerate(places):
        ranks.setdefault(place.pod, []).append(rank)
    alike: dict[int, set[tuple[int, int]]] = {}  # where the same shards are: node and pod
    for place in places:
        alike.setdefault(place.shards, set()).add((place.node, place.pod))
    several_nodes = len(set(nodes)) > 1

    def is_safe(place: Place) -> bool:
        others = alike[place.shards] - {(place.node, place.pod)}
        return any(node != place.node for node, _ in others) if several_nodes else bool(others)

    def target(rank: int, place: Place) -> int | None:
        if is_safe(place):
            return None
        _, pod = pods[(number[place.pod] + distance) % len(pods)]
        return ranks[pod][ranks[place.pod].index(rank)]

    return [target(rank, place) for rank, place in enumerate(places)]


def receivers_of_leaving(
    leaves: Sequence[bool], places: Sequence[Place], copies: Sequence[int | None] = ()
) -> dict[int, int] | None:
    """Returns to which rank each rank of a leaving pod sends its shards, before it goes; None: those that stay cannot take them all.

    Args:
        leaves: whether each rank's pod leaves the group.
        places: of the ranks.
        copies: which rank has a copy of each rank's shards already, see `buddies`.
    """
    staying = [rank for rank, leaving in enumerate(leaves) if not leaving]
    kept = {places[rank].shards for rank in staying}
    kept |= {places[rank].shards for rank, holder in enumerate(copies) if holder is not None and not leaves[holder]}
    sending = []
    for rank, leaving in enumerate(leaves):
        if leaving and places[rank].shards not in kept:
            kept.add(places[rank].shards)
            sending.append(rank)
    return dict(zip(sending, staying, strict=False)) if len(sending) <= len(staying) else None
