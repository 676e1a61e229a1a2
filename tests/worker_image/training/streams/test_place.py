"""The place in an epoch of a stream, and the order of its shards."""

import pytest
from elastic_pytorch.training.streams.place import DONE, Change, Place, order_of


def test_what_is_left_begins_with_the_open_shards() -> None:
    place = Place(bytearray(5))
    place.apply([Change(3, 7), Change(0, None), Change(1, 2), Change(2, 0)])
    assert place.rest([4, 3, 2, 1, 0]) == [(3, 7), (1, 2), (4, 0), (2, 0)]
    place.apply([Change(3, None), Change(1, 4)])
    assert place.rest([4, 3, 2, 1, 0]) == [(1, 4), (4, 0), (2, 0)]
    assert place.left == 3
    assert list(place.status) == [DONE, 0, 0, DONE, 0]


def test_a_copy_stays_as_it_is() -> None:
    place = Place(bytearray(2))
    copy = place.copy()
    place.apply([Change(0, 1), Change(1, None)])
    assert copy.rest([0, 1]) == [(0, 0), (1, 0)]


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_order_has_each_shard_once(epoch: int) -> None:
    assert sorted(order_of(50, shuffle=True, seed=1, epoch=epoch)) == list(range(50))
    assert order_of(50, shuffle=False, seed=1, epoch=epoch) == list(range(50))


def test_an_order_depends_on_seed_and_epoch_alone() -> None:
    orders = [
        order_of(50, shuffle=True, seed=seed, epoch=epoch) for seed in (1, 2) for epoch in (0, 1)
    ]
    assert len(set(map(tuple, orders))) == 4
    assert order_of(6, shuffle=True, seed=1, epoch=0) == [2, 1, 4, 5, 3, 0], (
        "the same in each release: a saved place depends on it"
    )
