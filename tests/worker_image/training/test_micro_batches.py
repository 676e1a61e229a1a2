import pytest
from elastic_pytorch.training.micro_batches import (
    Cut,
    MicroBatch,
    StepShare,
    parts_each,
    share_of_batch,
    shares_within,
)
from hypothesis import given
from hypothesis import strategies as st


def shares(
    begin: int,
    end: int,
    world_size: int,
    micro_batch_size: int | None,
    full_batch: int | None = None,
    cut_for: int | None = None,
) -> list[list[MicroBatch]]:
    cut = Cut(
        micro_batch_size, cut_for or world_size, end - begin if full_batch is None else full_batch
    )
    return [
        list(share_of_batch(begin, end, cut, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]


def test_without_micro_batches_each_rank_takes_an_even_share_at_once() -> None:
    assert shares(10, 20, 3, None) == [
        [MicroBatch(10, 13, True)],
        [MicroBatch(13, 16, True)],
        [MicroBatch(16, 20, True)],
    ]


def test_a_rank_with_nothing_to_do_computes_what_counts_for_nothing() -> None:
    assert shares(10, 12, 3, None) == [
        [MicroBatch(10, 11, True)],
        [MicroBatch(11, 12, True)],
        [MicroBatch(10, 11, False)],
    ]


def test_a_short_batch_leaves_no_rank_with_a_single_sample_which_a_batch_norm_refuses() -> None:
    short = shares(10, 15, 4, None, full_batch=8)
    assert short == [
        [MicroBatch(10, 12, True)],
        [MicroBatch(12, 15, True)],
        *[[MicroBatch(10, 12, False)]] * 2,
    ]
    assert shares(10, 11, 2, None, full_batch=8) == [
        [MicroBatch(10, 11, True)],
        [MicroBatch(10, 11, False)],
    ]
    # Where a full batch has a rank with one sample, too.
    in_ones = shares(10, 13, 4, None, full_batch=7)
    assert [part.end - part.begin for [part] in in_ones] == [1] * 4


def test_micro_batches_are_the_same_for_any_world_and_dealt_out_evenly() -> None:
    assert shares(0, 10, 2, 4) == [
        [MicroBatch(0, 4, False), MicroBatch(0, 4, True)],
        [MicroBatch(4, 8, True), MicroBatch(8, 10, True)],
    ]


def test_a_smaller_group_computes_the_shares_of_a_larger_one_after_each_other() -> None:
    in_four = [part for share in shares(0, 10, 4, None) for part in share]
    assert shares(0, 10, 2, None, cut_for=4) == [in_four[:2], in_four[2:]]
    idle = [MicroBatch(0, 2, False)]
    assert shares(0, 10, 3, None, cut_for=4) == [
        idle + in_four[:1],
        idle + in_four[1:2],
        in_four[2:],
    ]


@pytest.mark.parametrize(
    ("full_batch", "world_size", "largest", "shares"),
    [
        (512, 8, 8, 8),
        (512, 7, 8, 14),  # 37 samples at most in each of two: not twice 64
        (512, 5, 8, 10),
        (512, 4, 8, 8),
        (512, 3, 8, 9),
        (512, 1, 8, 8),
        (510, 7, 8, 14),
        (512, 9, 8, 9),
        (16, 7, 8, 8),  # halves of a share would be single samples
        (3, 2, 4, 4),
    ],
)
def test_a_smaller_group_cuts_its_shares_evenly_below_those_of_the_largest(
    full_batch: int, world_size: int, largest: int, shares: int
) -> None:
    assert shares_within(full_batch, world_size=world_size, largest=largest) == shares


@given(full_batch=st.integers(1, 4096), largest=st.integers(1, 64), data=st.data())
def test_no_micro_batch_is_larger_than_in_the_largest_group_and_ranks_have_even_work(
    full_batch: int, largest: int, data: st.DataObject
) -> None:
    world_size = data.draw(st.integers(1, largest))
    limit = -(-full_batch // largest)
    cut = Cut(None, shares_within(full_batch, world_size=world_size, largest=largest), full_batch)
    dealt = [
        share_of_batch(0, full_batch, cut, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    assert max(part.end - part.begin for share in dealt for part in share) <= max(limit, 2)
    if full_batch >= 2 * cut.shares and cut.shares % world_size == 0:
        work = [sum(part.samples for part in share) for share in dealt]
        assert max(work) - min(work) <= len(dealt[0])


@given(
    begin=st.integers(0, 100),
    samples=st.integers(1, 60),
    world_size=st.integers(1, 9),
    micro_batch_size=st.none() | st.integers(1, 70),
    short_by=st.integers(0, 40),
    larger_by=st.integers(0, 5),
)
def test_a_batch_is_dealt_out_once_and_the_weights_make_its_mean(
    begin: int,
    samples: int,
    world_size: int,
    micro_batch_size: int | None,
    short_by: int,
    larger_by: int,
) -> None:
    end = begin + samples
    ranks = world_size + larger_by
    dealt = shares(begin, end, world_size, micro_batch_size, samples + short_by, ranks)
    cut = Cut(micro_batch_size, ranks, samples + short_by)
    assert {len(share) for share in dealt} == {parts_each(samples, cut, world_size=world_size)}
    counting = [part for share in dealt for part in share if part.counts]
    assert [position for part in counting for position in range(part.begin, part.end)] == list(
        range(begin, end)
    )
    assert all(begin <= part.begin < part.end <= end for share in dealt for part in share)
    if micro_batch_size is not None:
        assert counting == [
            part for part in shares(begin, end, 1, micro_batch_size)[0] if part.counts
        ]
    whole = StepShare([], samples, world_size)
    weights = {part: whole.weight_of(part.samples) for share in dealt for part in share}
    assert abs(sum(weights[part] for part in counting) / world_size - 1) < 1e-9
    assert all(abs(weights[part] / world_size - part.samples / samples) < 1e-9 for part in weights)
    work = [sum(part.counts for part in share) for share in dealt]
    assert max(work) - min(work) <= 1
    if micro_batch_size is None:
        assert counting == [
            part for [part] in shares(begin, end, ranks, None, samples + short_by) if part.counts
        ]
        if samples + short_by >= 2 * ranks and samples > 1:
            assert min(part.end - part.begin for share in dealt for part in share) >= 2
            sizes = [part.samples for part in counting]
            assert max(sizes) - min(sizes) <= 1
