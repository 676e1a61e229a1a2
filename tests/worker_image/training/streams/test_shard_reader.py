"""Reading shards in turn: batches, places within a shard, and shards that cannot be read."""

from collections.abc import Iterator
from typing import Any

import pytest
from elastic_pytorch.training.streams.deal import Position
from elastic_pytorch.training.streams.shard_reader import Shards, Unreadable, read_shards

LENGTHS = {"a": 5, "b": 0, "c": 3}


def read(name: str) -> Iterator[str]:
    return (f"{name}{number}" for number in range(LENGTHS[name]))


def shards(function: Any = read, block: int = 0, epoch: int = 0) -> Shards:
    return Shards(list(LENGTHS), function, block, seed=1, epoch=epoch)


def lane(items: list[tuple[int, int]], **options: Any) -> list[tuple[str, Position, list[int]]]:
    given = {"drop_last": False, "skip_unreadable": False, **options}
    source = given.pop("shards", None) or shards()
    return [
        (" ".join(samples), at, skipped)
        for samples, at, skipped in read_shards(items, source, 2, **given)
    ]


def test_batches_go_on_from_shard_to_shard() -> None:
    assert lane([(0, 0), (1, 0), (2, 0)]) == [
        ("a0 a1", Position(0, 2), []),
        ("a2 a3", Position(0, 4), []),
        ("a4 c0", Position(2, 1), []),
        ("c1 c2", Position(3, 0), []),  # that is the end of the shard is known
        ("", Position(3, 0), []),
    ]


def test_it_begins_within_the_shards_that_are_open() -> None:
    assert lane([(0, 3), (2, 2)]) == [
        ("a3 a4", Position(1, 2), []),
        ("c2", Position(2, 0), []),
        ("", Position(2, 0), []),
    ]


def test_a_short_last_batch_can_be_left_out() -> None:
    assert lane([(0, 4), (2, 1)], drop_last=True) == [
        ("a4 c1", Position(1, 2), []),
        ("", Position(2, 0), []),
    ]


def test_nothing_to_read() -> None:
    assert lane([]) == [("", Position(0, 0), [])]
    assert lane([(1, 0)]) == [("", Position(1, 0), [])]


def test_a_reader_that_can_begin_within_a_shard_is_asked_to() -> None:
    asked = []

    def read_from(name: str, start: int = 0) -> list[str]:
        asked.append((name, start))
        return list(read(name))[start:]

    assert lane([(0, 3), (2, 0)], shards=shards(read_from)) == lane([(0, 3), (2, 0)])
    assert asked == [("a", 3), ("c", 0)]


def long(name: str, start: int = 0) -> range:
    return range(start, 100)


@pytest.mark.parametrize("function", [long, lambda name: range(100)])
def test_a_block_has_an_order_of_its_own_and_goes_on_anywhere(function: Any) -> None:
    of = shards(function, block=8)
    whole = list(of.samples(0, 0))
    assert sorted(whole) == list(range(100))
    assert all(
        {n // 8 for n in whole[begin : begin + 8]} == {begin // 8} for begin in range(0, 100, 8)
    )
    for start in range(101):
        assert list(of.samples(0, start)) == whole[start:]
    other = list(shards(function, block=8, epoch=1).samples(0, 0))
    assert whole != other != list(of.samples(1, 0)) != whole
    assert whole != list(range(100))


def breaks(name: str) -> Iterator[str]:
    yield from read(name)
    if name != "c":
        raise OSError(f"no more of {name}")


def test_a_shard_that_cannot_be_read_is_an_error_that_names_it() -> None:
    with pytest.raises(
        Unreadable,
        match=r"shard 'a' cannot be read: OSError: no more of a; "
        r"after 5 samples.*skip_unreadable=True",
    ):
        lane([(0, 0), (2, 0)], shards=shards(breaks))
    with pytest.raises(
        Unreadable,
        match="shard 'b' cannot be read: TypeError: 'int' object is not iterable; after 0 samples",
    ):
        lane([(1, 0)], shards=shards(lambda name: 3))


def test_it_is_skipped_if_asked_and_told(caplog: pytest.LogCaptureFixture) -> None:
    assert lane([(0, 0), (1, 0), (2, 0)], shards=shards(breaks), skip_unreadable=True) == [
        ("a0 a1", Position(0, 2), []),
        ("a2 a3", Position(0, 4), []),
        ("a4 c0", Position(2, 1), [0, 1]),
        ("c1 c2", Position(3, 0), []),
        ("", Position(3, 0), []),
    ]
    assert lane([(1, 0)], shards=shards(breaks), skip_unreadable=True) == [
        ("", Position(1, 0), [1])
    ]


@pytest.mark.parametrize(("block", "had"), [(0, 6), (4, 4), (2, 6), (100, 6)])
def test_a_shard_that_has_become_shorter_is_an_error(block: int, had: int) -> None:
    with pytest.raises(
        Unreadable,
        match=f"shard 'c' cannot be read: Unreadable: it had {had} samples at least, and has 3 now",
    ):
        lane([(2, 6)], shards=shards(block=block))
