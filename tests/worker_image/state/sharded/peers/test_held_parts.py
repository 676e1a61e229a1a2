"""Which version of a sharded state goes on, by who holds what."""

from elastic_pytorch.state.sharded.peers.held_parts import Chosen, Held, choose
from elastic_pytorch.state_format.state_version import StateVersion

from tests.situations import situations

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


COPY = held(V1, 1, 1, own=False)
ALL = [held(V1, part, part) for part in range(3)]
SHARED = (5, 6, 5, 6)  # by ranks 0 and 2, as replicas of HSDP have them


@situations(
    "all_held,version,holders",
    {
        "nothing": ([], None, {}),
        "all": (ALL, V1, {0: 0, 1: 1, 2: 2}),
        "of a lost pod's part, a copy of the older version": (
            [held(V1, 0, 0), held(V2, 0, 0), held(V1, 2, 1), held(V2, 2, 1), COPY],
            V1,
            {0: 0, 1: 1, 2: 1},
        ),
        "no copy": ([held(V1, 0, 0), held(V1, 2, 1)], None, {}),
        "a copy beside the part itself, which is read": (
            [held(V1, 0, 0), held(V1, 1, 0, own=False), held(V1, 1, 2), held(V1, 2, 1)],
            V1,
            {0: 0, 1: 2, 2: 1},
        ),
        "replicas": (
            [held(V2, 1, 0, shards=SHARED), held(V2, 2, 1, shards=SHARED)],
            V2,
            {1: 0, 2: 1},
        ),
        "a newer part of another size": (
            [*ALL, held(V2, 0, 0, shards=(8, 9))],
            V1,
            {0: 0, 1: 1, 2: 2},
        ),
        "two groups that gave the same version": (
            [held(V1, 0, 0, group=9), *(held(V1, part, part + 1) for part in range(3))],
            V1,
            {0: 1, 1: 2, 2: 3},
        ),
        "no group that has all": ([held(V1, 0, 0, group=9), *ALL[1:]], None, {}),
    },
)
def test_newest_version_that_is_there_as_a_whole(
    all_held: list[Held], version: StateVersion | None, holders: dict[int, int]
) -> None:
    chosen = choose(all_held)
    assert (chosen.version if chosen else None) == version
    parts = chosen.parts if chosen else {}
    assert {part: each.holder for part, each in parts.items()} == holders


def test_equal_parts_are_known_for_what_is_their_own() -> None:
    parts = [held(V1, part, part, shards=(5, 5)) for part in range(2)]
    assert choose(parts) == Chosen(V1, 2, {0: parts[0]}, {1: parts[1]})
