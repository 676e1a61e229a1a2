import pytest
from elastic_pytorch.training.epoch_batches import EpochBatches
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("batches", "begin", "end", "left", "sizes", "full"),
    [
        (EpochBatches(10, 4), 0, 4, 3, {4: 2, 2: 1}, 4),
        (EpochBatches(10, 4), 8, 10, 1, {2: 1}, 4),
        (EpochBatches(3, 4), 0, 3, 1, {3: 1}, 3),
        (EpochBatches(10, 1, (3, 4, 10)), 0, 3, 3, {3: 1, 1: 1, 6: 1}, 3),
        (EpochBatches(10, 1, (3, 4, 10)), 3, 4, 2, {1: 1, 6: 1}, 1),
    ],
)
def test_where_batches_end(
    batches: EpochBatches, begin: int, end: int, left: int, sizes: dict[int, int], full: int
) -> None:
    assert (batches.end(begin), batches.left(begin), batches.sizes(begin)) == (end, left, sizes)
    assert batches.full(end - begin) == full


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 9), st.booleans())
def test_from_end_to_end_all_samples_come_in_the_batches_that_were_told(
    sizes: list[int], size: int, own: bool
) -> None:
    ends = tuple(sum(sizes[: number + 1]) for number in range(len(sizes)))
    batches = EpochBatches(ends[-1], size, ends if own else None)
    begin, seen = 0, []
    while begin < batches.samples:
        assert batches.left(begin) == sum(batches.sizes(begin).values())
        seen.append(batches.end(begin) - begin)
        begin = batches.end(begin)
    assert begin == ends[-1]
    assert batches.sizes(0) == {one: seen.count(one) for one in seen}
    assert seen == sizes if own else all(one == size for one in seen[:-1])
