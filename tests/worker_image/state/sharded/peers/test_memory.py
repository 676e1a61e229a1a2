"""How much of a sharded state a rank keeps, and whether there is room for it."""

import pytest
from elastic_pytorch.state.sharded.peers.memory import Room, bytes_needed

pytestmark = pytest.mark.torch
GB = 10**9
TO = [1, 0, None]


def rooms(left: int = -1, held: int = 0) -> list[Room]:
    return [
        Room(1 * GB, 1 * GB, held, -1),
        Room(2 * GB, 3 * GB, held, left),
        Room(4 * GB, 4 * GB, held, -1),
    ]


def test_rank_keeps_two_versions_of_its_own_shards_and_of_those_that_it_gets() -> None:
    assert bytes_needed(rooms(), TO, 1) == [7 * GB, 6 * GB, 8 * GB]


@pytest.mark.parametrize(
    ("left", "held", "workers", "fits"),
    [
        (6 * GB, 0, 1, True),
        (6 * GB - 1, 0, 1, False),
        (5 * GB, 1 * GB, 1, True),
        (6 * GB, 0, 2, False),
        (0, 6 * GB, 2, True),
    ],
)
def test_container_with_less_than_that_is_refused(
    left: int, held: int, workers: int, fits: bool
) -> None:
    if fits:
        bytes_needed(rooms(left, held), TO, workers)
        return
    with pytest.raises(
        RuntimeError, match=r"rank 1 would keep 6\.0 GB .*raise resources\.limits\.memory"
    ):
        bytes_needed(rooms(left, held), TO, workers)
