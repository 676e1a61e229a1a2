"""A StreamLoader in real groups with DataLoader's processes: each rank's share, and the end."""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.training.streams.loader import StreamLoader
from elastic_pytorch.training.streams.shard_reader import Unreadable
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import get_worker_info

from tests.worker_image.torch_group import run_group, running_group
from tests.worker_image.training.streams.ranks import as_list, run_ranks

pytestmark = pytest.mark.torch

Seen = list[tuple[list[int], float]]
UNEVEN = (31, 0, 7, 40, 1, 12, 25)


def read_uneven(shard: int) -> Iterator[int]:
    return iter(range(100 * shard, 100 * shard + UNEVEN[shard]))


def every(lengths: Any = UNEVEN) -> Counter[int]:
    return Counter(
        100 * shard + sample for shard, length in enumerate(lengths) for sample in range(length)
    )


def epoch_of(stream: elastic.ElasticStream, loader: StreamLoader) -> Seen:
    """What a rank gets in an epoch: the samples of each micro-batch that count, and its weight."""
    seen: Seen = []
    for batch in loader:
        with stream.part() as part:
            seen.append((list(batch) if part.samples else [], part.weight))
        if part.last:
            stream.advance()
    return seen


def counted(ranks: list[Seen]) -> Counter[int]:
    assert len({len(rank) for rank in ranks}) == 1, "all ranks do as many steps"
    return Counter(int(sample) for rank in ranks for batch, _ in rank for sample in batch)


def as_other_libraries_split(shard: int) -> Iterator[int]:
    """As datasets of others do it, which leave out what they take to be another worker's."""
    info = get_worker_info()
    samples = list(read_uneven(shard))
    return iter(samples if info is None else samples[info.id :: info.num_workers])


def test_a_reader_that_splits_by_worker_leaves_nothing_out() -> None:
    stream = elastic.ElasticStream(range(len(UNEVEN)), as_other_libraries_split, 9)
    assert counted([epoch_of(stream, stream.loader(num_workers=3))]) == every()


def steps_of_ddp(shards: int, workers: int) -> tuple[Seen, list[bool], list[torch.Tensor]]:
    torch.manual_seed(1)
    model = nn.Linear(1, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    stream = elastic.ElasticStream(range(shards), read_uneven, 8, micro_batch_size=3)
    loader = stream.loader(num_workers=workers)
    state = elastic.State(None, model=model, optimizer=optimizer, stream=stream)
    state.restore()
    seen, ends = [], []
    parallel_model = DistributedDataParallel(model)
    for step in elastic.steps(state, loader, parallel_model, epochs=2):
        optimizer.zero_grad()
        for batch in step.parts:
            seen.append((batch.tolist() if step.samples else [], 1.0))
            step.backward(parallel_model(batch[:, None].double()).square().mean())
        optimizer.step()
        ends.append(step.ends_epoch)
    return seen, ends, [each.detach() for each in model.parameters()]


@pytest.mark.process
@pytest.mark.parametrize(
    ("shards", "workers"), [(1, 0), (7, 2)], ids=["fewer shards than ranks", "workers"]
)
def test_all_ranks_of_ddp_end_an_epoch_together(shards: int, workers: int) -> None:
    outcomes = run_group(3, steps_of_ddp, shards, workers)
    assert counted([seen for seen, _, _ in outcomes]) == Counter(
        dict.fromkeys(every(UNEVEN[:shards]), 2)
    )
    for _, ends, parameters in outcomes:
        assert (sum(ends), ends[-1]) == (2, True)
        assert parameters == outcomes[0][2]


@pytest.mark.parametrize(
    "lengths", [[90, 1, 1, 1, 90, 90], [50, 10, 50, 10, 50, 10, 50], [6, 1, 1, 1, 1, 6]]
)
def test_no_rank_idles_as_long_as_there_is_a_shard_for_it(lengths: list[int]) -> None:
    def read(shard: int) -> Iterator[int]:
        return iter(range(100 * shard, 100 * shard + lengths[shard]))

    def make() -> elastic.ElasticStream:
        return elastic.ElasticStream(range(len(lengths)), read, 6, seed_random=False, shuffle=False)

    def train(stream: elastic.ElasticStream, loader: StreamLoader) -> tuple[Seen, list[int]]:
        seen: Seen = []
        left: list[int] = []
        for batch in loader:
            left.append(stream._place.left)
            with stream.part() as part:
                seen.append((list(batch) if part.samples else [], part.weight))
            stream.advance()
        return seen, left

    outcomes = run_ranks(3, make, train, collate_fn=as_list)
    assert counted([seen for seen, _ in outcomes]) == every(lengths)
    for number, left in enumerate(outcomes[0][1]):
        busy = sum(bool(seen[number][0]) for seen, _ in outcomes)
        assert busy >= min(3, left), f"step {number}: {busy} ranks read, and {left} shards are left"


def test_ranks_that_a_small_batch_has_no_sample_for_compute_nothing() -> None:
    def make() -> elastic.ElasticStream:
        return elastic.ElasticStream(range(len(UNEVEN)), read_uneven, 2, seed_random=False)

    ranks = run_ranks(4, make, epoch_of, collate_fn=as_list)
    assert counted(ranks) == every()
    assert [any(batch for batch, _ in rank) for rank in ranks] == [True, True, False, False]


def test_short_batches_can_be_left_out() -> None:
    def make() -> elastic.ElasticStream:
        return elastic.ElasticStream(
            range(len(UNEVEN)), read_uneven, 8, drop_last=True, seed_random=False
        )

    ranks = run_ranks(2, make, epoch_of, collate_fn=as_list)
    assert {len(batch) for rank in ranks for batch, _ in rank} <= {0, 4}
    assert not counted(ranks) - every()
    assert sum((every() - counted(ranks)).values()) <= 2 * 3, (
        "each rank leaves less than its share out"
    )


def test_skipped_shards_are_known_to_all_ranks(caplog: pytest.LogCaptureFixture) -> None:
    def read(shard: int) -> Iterator[int]:
        yield from read_uneven(shard)
        if shard in (3, 5):
            raise OSError("gone")

    def make() -> elastic.ElasticStream:
        return elastic.ElasticStream(
            range(len(UNEVEN)), read, 6, skip_unreadable=True, seed_random=False
        )

    def train(stream: elastic.ElasticStream, loader: StreamLoader) -> tuple[Seen, list[list[Any]]]:
        seen: Seen = []
        skipped = []
        for batch in loader:
            with stream.part() as part:
                seen.append((list(batch) if part.samples else [], part.weight))
            skipped.append(
                [*stream.skipped, *(stream._names[shard] for shard in stream._taken[0].skipped)]
            )
            stream.advance()
        return seen, skipped

    ranks = run_ranks(3, make, train, collate_fn=as_list)
    assert counted([seen for seen, _ in ranks]) == every(), "what was read of them counts"
    assert [sorted(skipped[-1]) for _, skipped in ranks] == [[3, 5]] * 3
    assert (
        "shard 3 cannot be read: OSError: gone; after 40 samples; the rest of it is skipped"
        in caplog.text
    )


def read_of_which_one_breaks(shard: int) -> Iterator[int]:
    yield from range(50)
    if shard == 1:
        raise OSError("gone")
    yield from range(50)


def train_on_what_breaks(workers: int) -> None:
    stream = elastic.ElasticStream(range(2), read_of_which_one_breaks, 4, shuffle=False)
    try:
        epoch_of(stream, stream.loader(num_workers=workers))
    except Unreadable as error:
        assert dist.get_rank() == 1
        assert "shard 1 cannot be read: OSError: gone; after 50 samples" in str(error)
        os._exit(7)


@pytest.mark.process
@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_shard_that_cannot_be_read_ends_the_group(workers: int) -> None:
    with running_group(2, train_on_what_breaks, workers) as group:
        first, second = group.exit_codes()
        assert second == 7
        assert first == 1, "an error of the collective, and no hang"
