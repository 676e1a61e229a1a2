"""Who reads which shards."""

import pytest
from elastic_pytorch.training.streams.deal import Deal, Position, deals_again, share
from elastic_pytorch.training.streams.place import Change

ITEMS = [(shard, 5 * (shard < 2)) for shard in range(7)]


@pytest.mark.parametrize(
    ("readers", "workers", "expected"),
    [
        (1, 1, [[[0, 1, 2, 3, 4, 5, 6]]]),
        (2, 1, [[[0, 2, 4, 6]], [[1, 3, 5]]]),
        (2, 2, [[[0, 4], [2, 6]], [[1, 5], [3]]]),
        (5, 2, [[[0], [5]], [[1], [6]], [[2], []], [[3], []], [[4], []]]),
    ],
)
def test_shards_are_dealt_to_ranks_before_workers(
    readers: int, workers: int, expected: list[list[list[int]]]
) -> None:
    deal = Deal(ITEMS, readers, workers)
    found = [
        [[shard for shard, _ in deal.of_worker(rank, worker)] for worker in range(workers)]
        for rank in range(readers)
    ]
    assert found == expected
    assert list(deal.of_worker(readers, 0)) == [], "a rank that does not read has none"


def test_positions_tell_what_has_changed() -> None:
    deal = Deal(ITEMS, 2, 2)
    before = deal.begin(0)
    assert before == [Position(0, 5), Position(0, 0)]
    assert list(deal.changes(0, before, before)) == []
    assert list(deal.changes(0, before, [Position(0, 8), Position(1, 3)])) == [
        Change(0, 8),
        Change(2, None),
        Change(6, 3),
    ]
    ends = [Position(2, 0), Position(2, 0)]
    assert list(deal.changes(0, before, ends)) == [Change(shard, None) for shard in (0, 4, 2, 6)]


@pytest.mark.parametrize(
    ("batch_size", "readers", "expected"),
    [(8, 2, [4, 4, 0]), (7, 3, [2, 2, 3]), (1, 1, [1, 0, 0]), (2, 2, [1, 1, 0])],
)
def test_shares_add_up_to_the_batch(batch_size: int, readers: int, expected: list[int]) -> None:
    assert [share(batch_size, rank, readers) for rank in range(3)] == expected
    assert sum(expected) == batch_size


@pytest.mark.parametrize(
    ("counts", "left", "readers", "expected"),
    [
        ([4, 4, 4], 9, 3, False),
        ([4, 0, 4], 3, 3, True),
        ([4, 0, 4], 2, 3, False),  # as many shards as busy ranks: nothing to give
        ([4, 0, 0], 2, 3, True),
        ([4, 4, 0], 9, 2, False),  # the third rank does not read
        ([0, 0, 0], 3, 3, False),  # what is left is empty
    ],
)
def test_it_is_dealt_again_when_an_idle_rank_can_get_something(
    counts: list[int], left: int, readers: int, expected: bool
) -> None:
    assert deals_again(counts, left, readers) is expected
