"""Which version of a sharded state goes on, by who holds what."""

import pytest
from elastic_pytorch.state.sharded.peers.held_parts import Chosen, Held, choose
from elastic_pytorch.state_format.state_version import StateVersion

V1, V2 = StateVersion(1, 10), StateVersion(1, 20)


def held(
    version: StateVersion,
    part: int,
    holder: int,
    *,
    own: bool = True,
    shards: tuple[int, ...] = (5, 6, 7),
    group: int = 1,
) -> Held:
    return Held(version, group, part, shards, holder, own, 0)


@pytest.mark.parametrize(
    ("all_held", "version", "holders"),
    [
        ([], None, {}),
        ([held(V1, 0, 0), held(V1, 1, 1), held(V1, 2, 2)], V1, {0: 0, 1: 1, 2: 2}),
        # Rank 1's pod is lost: of the newest version no other pod has its part.
        (
            [
                held(V1, 0, 0),
                held(V2, 0, 0),
                held(V1, 2, 1),
                held(V2, 2, 1),
                held(V1, 1, 1, own=False),
            ],
            V1,
            {0: 0, 1: 1, 2: 1},
        ),
        ([held(V1, 0, 0), held(V1, 2, 1)], None, {}),
        # A copy is not read where the part itself is there.
        (
            [held(V1, 0, 0), held(V1, 1, 0, own=False), held(V1, 1, 2), held(V1, 2, 1)],
            V1,
            {0: 0, 1: 2, 2: 1},
        ),
        # Ranks 0 and 2 have the same shards, as replicas of HSDP do.
        (
            [held(V2, 1, 0, shards=(5, 6, 5, 6)), held(V2, 2, 1, shards=(5, 6, 5, 6))],
            V2,
            {1: 0, 2: 1},
        ),
        # Older parts of another size.
        (
            [held(V1, 0, 0), held(V1, 1, 1), held(V1, 2, 2), held(V2, 0, 0, shards=(8, 9))],
            V1,
            {0: 0, 1: 1, 2: 2},
        ),
        # Two groups that knew nothing of each other have given their states the same version.
        (
            [held(V1, 0, 0, group=9), *(held(V1, part, part + 1) for part in range(3))],
            V1,
            {0: 1, 1: 2, 2: 3},
        ),
        ([held(V1, 0, 0, group=9), held(V1, 1, 1), held(V1, 2, 2)], None, {}),
    ],
    ids=[
        "nothing",
        "all",
        "a copy",
        "no copy",
        "both",
        "replicas",
        "torn",
        "two groups",
        "no group",
    ],
)
def test_newest_version_that_is_there_as_a_whole(
    all_held: list[Held], version: StateVersion | None, holders: dict[int, int]
) -> None:
    chosen = choose(all_held)
    assert (chosen.version if chosen else None) == version
    assert (
        {part: each.holder for part, each in chosen.parts.items()} == holders
        if chosen
        else not holders
    )


def test_equal_parts_are_known_for_what_is_their_own() -> None:
    parts = [held(V1, part, part, shards=(5, 5)) for part in range(2)]
    assert choose(parts) == Chosen(V1, 2, {0: parts[0]}, {1: parts[1]})
