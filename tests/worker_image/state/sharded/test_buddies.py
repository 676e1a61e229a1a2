"""Who keeps a copy of whose shards, and who takes them over from a pod that leaves."""

import pytest
from elastic_pytorch.state.sharded.buddies import Place, buddies, receivers_of_leaving
from hypothesis import given
from hypothesis import strategies as st


def places(nodes: str, per_pod: int = 1, replicas: int = 1) -> list[Place]:
    """A pod for each letter, on the node of that name."""
    ranks = [(pod, ord(node)) for pod, node in enumerate(nodes) for _ in range(per_pod)]
    return [Place(pod, node, rank % (len(ranks) // replicas)) for rank, (pod, node) in enumerate(ranks)]


@pytest.mark.parametrize(
    ("group", "to"),
    [
        (places("a"), [None]),
        (places("ab"), [1, 0]),
        (places("aa"), [1, 0]),
        (places("abc"), [1, 2, 0]),
        (places("aabb"), [2, 3, 0, 1]),
        (places("abab"), [1, 0, 3, 2]),
        (places("ab", per_pod=2), [2, 3, 0, 1]),
        (places("a", per_pod=2), [None, None]),
        (places("abab", replicas=2), [1, 0, 3, 2]),
        (places("aabb", replicas=2), [None] * 4),
        (places("aaaa", replicas=2), [None] * 4),
    ],
    ids=[
        "one pod",
        "two nodes",
        "one node",
        "three",
        "pairs",
        "mixed",
        "processes",
        "one pod of two",
        "replica beside",
        "replica",
        "near",
    ],
)
def test_copies_are_on_another_node(group: list[Place], to: list[int | None]) -> None:
    assert buddies(group) == to


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=12), st.integers(1, 3))
def test_no_copy_is_on_the_same_node_if_there_is_room_elsewhere(nodes: list[str], per_pod: int) -> None:
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
def test_shards_of_leaving_pods_go_to_those_that_stay(leaving: list[int], replicas: int, to: dict[int, int] | None) -> None:
    assert receivers_of_leaving([rank in leaving for rank in range(4)], places("abcd", replicas=replicas)) == to


@pytest.mark.parametrize(
    ("leaving", "to"),
    [([3], {}), ([0, 1], {0: 2}), ([0, 1, 2], None), ([1, 3], {})],
    ids=["one", "half", "most", "every other"],
)
def test_shards_that_have_a_copy_in_a_pod_that_stays_are_not_sent(leaving: list[int], to: dict[int, int] | None) -> None:
    group = places("abcd")
    assert receivers_of_leaving([rank in leaving for rank in range(4)], group, buddies(group)) == to
