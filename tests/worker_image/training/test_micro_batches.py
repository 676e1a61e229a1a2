from elastic_pytorch.training.micro_batches import MicroBatch, parts_each, share_of_batch, weight_of
from hypothesis import given, settings
from hypothesis import strategies as st


def shares(
    begin: int, end: int, world_size: int, micro_batch_size: int | None, full_batch: int | None = None
) -> list[list[MicroBatch]]:
    return [
        share_of_batch(
            begin,
            end,
            rank=rank,
            world_size=world_size,
            micro_batch_size=micro_batch_size,
            full_batch=end - begin if full_batch is None else full_batch,
        )
        for rank in range(world_size)
    ]


def test_without_micro_batches_each_rank_takes_an_even_share_at_once() -> None:
    assert shares(10, 20, 3, None) == [[MicroBatch(10, 13, True)], [MicroBatch(13, 16, True)], [MicroBatch(16, 20, True)]]


def test_a_rank_with_nothing_to_do_computes_what_counts_for_nothing() -> None:
    assert shares(10, 12, 3, None) == [[MicroBatch(10, 11, True)], [MicroBatch(11, 12, True)], [MicroBatch(10, 11, False)]]


def test_a_short_batch_leaves_no_rank_with_a_single_sample_which_a_batch_norm_refuses() -> None:
    short = shares(10, 15, 4, None, full_batch=8)
    assert short == [[MicroBatch(10, 12, True)], [MicroBatch(12, 15, True)], *[[MicroBatch(10, 12, False)]] * 2]
    assert shares(10, 11, 2, None, full_batch=8) == [[MicroBatch(10, 11, True)], [MicroBatch(10, 11, False)]]
    in_ones = shares(10, 13, 4, None, full_batch=7)  # where a full batch has a rank with one sample, too
    assert [part.end - part.begin for [part] in in_ones] == [1] * 4


def test_micro_batches_are_the_same_for_any_world_and_dealt_out_evenly() -> None:
    assert shares(0, 10, 2, 4) == [
        [MicroBatch(0, 4, False), MicroBatch(0, 4, True)],
        [MicroBatch(4, 8, True), MicroBatch(8, 10, True)],
    ]


@settings(deadline=None)
@given(
    begin=st.integers(0, 100),
    samples=st.integers(1, 60),
    world_size=st.integers(1, 9),
    micro_batch_size=st.none() | st.integers(1, 70),
    short_by=st.integers(0, 40),
)
def test_a_batch_is_dealt_out_once_and_the_weights_make_its_mean(
    begin: int, samples: int, world_size: int, micro_batch_size: int | None, short_by: int
) -> None:
    end = begin + samples
    dealt = shares(begin, end, world_size, micro_batch_size, samples + short_by)
    assert {len(share) for share in dealt} == {parts_each(samples, world_size=world_size, micro_batch_size=micro_batch_size)}
    counting = [part for share in dealt for part in share if part.counts]
    assert [position for part in counting for position in range(part.begin, part.end)] == list(range(begin, end))
    assert all(begin <= part.begin < part.end <= end for share in dealt for part in share)
    if micro_batch_size is not None:
        assert counting == [part for part in shares(begin, end, 1, micro_batch_size)[0] if part.counts]
    weights = {part: weight_of(part, batch_samples=samples, world_size=world_size) for share in dealt for part in share}
    assert abs(sum(weights[part] for part in counting) / world_size - 1) < 1e-9
    assert all(abs(weights[part] / world_size - part.samples / samples) < 1e-9 for part in weights)
    work = [sum(part.counts for part in share) for share in dealt]
    assert max(work) - min(work) <= 1
    if micro_batch_size is None and samples + short_by >= 2 * world_size and samples > 1:
        assert min(part.end - part.begin for [part] in dealt) >= 2
        sizes = [part.samples for [part] in dealt if part.counts]
        assert max(sizes) - min(sizes) <= 1
