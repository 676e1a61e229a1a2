"""Who keeps a copy of whose shards, and who takes them over from a pod that leaves."""

import pytest
from elastic_pytorch.state.sharded.peers.buddies import RankLocation, buddies, receivers_of_leaving
from hypothesis import given
from hypothesis import strategies as st

from tests.situations import situations


def places(nodes: str, per_pod: int = 1, replicas: int = 1, unit: int = 1) -> list[RankLocation]:
    """A pod for each letter, on the node of that name; units of that many pods."""
    ranks = [(pod, ord(node)) for pod, node in enumerate(nodes) for _ in range(per_pod)]
    return [
        RankLocation(pod // unit, pod, node, rank % (len(ranks) // replicas))
        for rank, (pod, node) in enumerate(ranks)
    ]


@situations(
    "group,to",
    {
        "one pod": (places("a"), [None]),
        "two nodes": (places("ab"), [1, 0]),
        "one node": (places("aa"), [1, 0]),
        "three": (places("abc"), [1, 2, 0]),
        "pairs": (places("aabb"), [2, 3, 0, 1]),
        "mixed": (places("abab"), [1, 0, 3, 2]),
        "processes": (places("ab", per_pod=2), [2, 3, 0, 1]),
        "one pod of two": (places("a", per_pod=2), [None, None]),
        "replica beside": (places("abab", replicas=2), [1, 0, 3, 2]),
        "replica": (places("aabb", replicas=2), [None] * 4),
        "near": (places("aaaa", replicas=2), [None] * 4),
        "units": (places("abcd", unit=2), [2, 3, 0, 1]),
        "three units": (places("abcdef", unit=2), [2, 3, 4, 5, 0, 1]),
        "units on nodes": (places("aabb", per_pod=2, unit=2), [4, 5, 6, 7, 0, 1, 2, 3]),
        "units beside each other": (places("aaaabbbb", unit=2), [4, 5, 6, 7, 0, 1, 2, 3]),
        "one unit": (places("abcd", unit=4), [1, 2, 3, 0]),
        "replicated units": (places("abcd", replicas=2, unit=2), [None] * 4),
        "units across nodes": (places("abab", unit=2), [2, 3, 0, 1]),
        "replicas across nodes": (places("abab", replicas=2, unit=2), [None] * 4),
        "replicas on two nodes": (places("aaaabbbb", replicas=4, unit=2), [None] * 8),
        "more on one node": (places("aaaabb", replicas=3, unit=2), [None] * 6),
    },
)
def test_copies_are_on_another_node(group: list[RankLocation], to: list[int | None]) -> None:
    assert buddies(group) == to


@given(
    st.lists(st.sampled_from("abcd"), min_size=4, max_size=12), st.integers(2, 3), st.integers(1, 3)
)
def test_no_copy_is_in_the_same_unit(nodes: list[str], unit: int, per_pod: int) -> None:
    group = places("".join(nodes[: len(nodes) // unit * unit]), per_pod, unit=unit)
    to = buddies(group)
    receivers = [each for each in to if each is not None]
    assert len(set(receivers)) == len(receivers) == len(group), "each keeps one copy"
    several = group[-1].unit > 0
    assert all(
        group[buddy].unit != group[rank].unit or not several
        for rank, buddy in enumerate(to)
        if buddy is not None
    )


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=12), st.integers(1, 3))
def test_no_copy_is_on_the_same_node_if_there_is_room_elsewhere(
    nodes: list[str], per_pod: int
) -> None:
    group = places("".join(nodes), per_pod)
    to = buddies(group)
    receivers = [each for each in to if each is not None]
    assert len(set(receivers)) == len(receivers) == len(group), "each keeps one copy"
    most = max(nodes.count(node) for node in set(nodes))
    for rank, buddy in enumerate(to):
        assert buddy is not None
        assert group[buddy].pod != group[rank].pod
        assert group[buddy].node != group[rank].node or 2 * most > len(nodes)


@pytest.mark.parametrize(
    ("leaving", "replicas", "to"),
    [
        ([], 1, {}),
        ([3], 1, {3: 0}),
        ([0, 1], 1, {0: 2, 1: 3}),
        ([0, 1, 2], 1, None),
        ([0, 1, 2, 3], 1, None),
        ([1], 2, {}),
        ([1, 3], 2, {1: 0}),
    ],
    ids=["none", "one", "half", "most", "all", "a replica", "both replicas"],
)
def test_shards_of_leaving_pods_go_to_those_that_stay(
    leaving: list[int], replicas: int, to: dict[int, int] | None
) -> None:
    group = places("abcd", replicas=replicas)
    assert receivers_of_leaving([rank in leaving for rank in range(4)], group) == to


@pytest.mark.parametrize(
    ("leaving", "to"),
    [([3], {}), ([0, 1], {0: 2}), ([0, 1, 2], None), ([1, 3], {})],
    ids=["one", "half", "most", "every other"],
)
def test_shards_that_have_a_copy_in_a_pod_that_stays_are_not_sent(
    leaving: list[int], to: dict[int, int] | None
) -> None:
    group = places("abcd")
    assert receivers_of_leaving([rank in leaving for rank in range(4)], group, buddies(group)) == to
