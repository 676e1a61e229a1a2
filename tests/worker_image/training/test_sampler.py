"""Groups of any sizes share an ElasticSampler's state in turn; a sampler plays each rank."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.training.sampler import ElasticSampler
from hypothesis import given
from hypothesis import strategies as st
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler, TensorDataset

pytestmark = pytest.mark.torch


@contextmanager
def group(rank: int, world_size: int) -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


@dataclass
class Rank:
    """A rank of a group: its sampler, and how far its DataLoader runs ahead."""

    sampler: ElasticSampler
    rank: int
    world_size: int
    ahead: int
    fetched: deque[list[int]] = field(default_factory=deque)

    def start(self, state: dict[str, Any]) -> None:
        self.sampler.load_state_dict(state)
        with group(self.rank, self.world_size):
            self.batches = iter(self.sampler)
            self.length = len(self.sampler)

    def next(self) -> list[int] | None:
        while len(self.fetched) <= self.ahead and (batch := next(self.batches, None)) is not None:
            self.fetched.append(batch)
        return self.fetched.popleft() if self.fetched else None

    def step(self) -> tuple[dict[int, float], int] | None:
        """The share of the gradient of each sample, and micro-batches; None: the epoch is over."""
        shares: dict[int, float] = {}
        count, last = 0, False
        while not last:
            batch = self.next()
            if batch is None:
                assert count == 0
                return None
            with self.sampler.part() as part:
                assert part.weight == 0 or part.samples == len(batch)
                if part.samples:
                    assert not shares.keys() & set(batch)
                    shares |= dict.fromkeys(batch, part.weight / len(batch) / self.world_size)
            count, last = count + 1, part.last
        self.length -= count
        return shares, count


SIZES = (
    st.fixed_dictionaries(
        {"batch_size": st.integers(1, 20), "micro_batch_size": st.none() | st.integers(1, 8)}
    )
    | st.fixed_dictionaries({"batch_size": st.integers(1, 20), "keep_micro_batch": st.just(True)})
    | st.fixed_dictionaries(
        {
            "per_worker_batch_size": st.integers(1, 6),
            "micro_batch_size": st.none() | st.integers(1, 4),
        }
    )
)


@dataclass(frozen=True)
class Life:
    """A group: its ranks, how far they prefetch, its steps, and whether one is uncommitted."""

    world_size: int
    ahead: int
    steps: int
    loses_a_step: bool


def train_an_epoch(lives: list[Life], length: int, options: dict[str, Any]) -> list[list[int]]:
    """The samples of each committed step of the first epoch, which the last life ends."""

    def sampler() -> ElasticSampler:
        return ElasticSampler(length, **options)

    state = sampler().state_dict()
    steps: list[list[int]] = []
    for number, life in enumerate(lives):
        ranks = [
            Rank(sampler(), rank, life.world_size, life.ahead) for rank in range(life.world_size)
        ]
        for rank in ranks:
            rank.start(state)
        last_life = number == len(lives) - 1
        done = 0
        while last_life or done < life.steps + life.loses_a_step:
            outcomes = [rank.step() for rank in ranks]
            if outcomes[0] is None:
                assert outcomes == [None] * len(ranks), "all ranks have the same number of steps"
                assert {rank.length for rank in ranks} == {0}, "len() tells it"
                break
            told = [outcome for outcome in outcomes if outcome is not None]
            assert len({count for _, count in told}) == 1, (
                "all ranks have the same number of micro-batches"
            )
            shares = {index: share for one, _ in told for index, share in one.items()}
            assert len(shares) == sum(len(one) for one, _ in told), (
                "no two ranks have the same sample"
            )
            assert all(abs(share * len(shares) - 1) < 1e-9 for share in shares.values()), (
                "each sample has the same say"
            )
            done += 1
            if last_life or done <= life.steps:
                for rank in ranks:
                    rank.sampler.advance()
                state = ranks[0].sampler.state_dict()
                assert all(rank.sampler.state_dict() == state for rank in ranks)
                steps.append(sorted(shares))
        if state["epoch"] == 1:
            break
    assert (state["epoch"], state["cursor"]) == (1, 0)
    return steps


@given(
    lives=st.lists(
        st.builds(Life, st.integers(1, 5), st.integers(0, 5), st.integers(0, 4), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    length=st.integers(1, 60),
    sizes=SIZES,
    shuffle=st.booleans(),
)
def test_every_sample_comes_exactly_once_whatever_happens_to_the_group(
    lives: list[Life], length: int, sizes: dict[str, Any], shuffle: bool
) -> None:
    options = {**sizes, "shuffle": shuffle, "seed": 5}
    steps = train_an_epoch(lives, length, options)
    assert sorted(index for step in steps for index in step) == list(range(length))
    if "batch_size" in sizes:
        assert steps == train_an_epoch([Life(1, 0, 0, False)], length, options), (
            "the steps are those of a single rank"
        )
        assert len(steps) == ElasticSampler(length, **options).batches_per_epoch


@given(length=st.integers(1, 60), batch_size=st.integers(1, 20), world_size=st.integers(1, 4))
def test_a_short_last_batch_can_be_left_out(length: int, batch_size: int, world_size: int) -> None:
    options = {"batch_size": batch_size, "drop_last": True}
    if length < batch_size:
        with pytest.raises(ValueError, match="make no batch"):
            ElasticSampler(length, **options)
        return
    steps = train_an_epoch([Life(world_size, 2, 0, False)], length, options)
    assert [len(step) for step in steps] == [batch_size] * (length // batch_size)


@pytest.mark.parametrize(
    ("device_type", "keep", "largest"),
    [("cpu", None, 8), ("cuda", None, 2), ("xpu", None, 2), ("cpu", True, 2), ("cuda", False, 8)],
)
def test_what_the_model_sees_at_once_is_that_of_the_largest_group_on_accelerators(
    device_type: str, keep: bool | None, largest: int
) -> None:
    state = ElasticSampler(64, 8).state_dict()
    seen = []
    for world_size in (2, 4, 1, 2, 5):
        sampler = ElasticSampler(64, 8, keep_micro_batch=keep)
        sampler.load_state_dict(state)
        sampler.trains(device_type)
        with group(world_size - 1, world_size):
            seen.append([len(batch) for batch in sampler])
        state = sampler.state_dict()
    assert seen[:2] == [[4] * 8, [2] * 8]
    assert max(seen[2]) == largest
    assert seen[2:4] == ([[2] * 32, [2] * 16] if largest == 2 else [[8] * 8, [4] * 8])
    assert state["largest_group"] == 5


def test_a_state_of_before_there_was_a_largest_group_is_taken() -> None:
    state = ElasticSampler(64, 8).state_dict()
    del state["largest_group"]
    sampler = ElasticSampler(64, 8, keep_micro_batch=True)
    sampler.load_state_dict(state)
    assert [len(batch) for batch in sampler] == [8] * 8


def test_order_depends_on_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = ElasticSampler(50, 50, seed=seed)
        sampler.load_state_dict({**sampler.state_dict(), "epoch": epoch})
        torch.rand(3)
        return next(iter(sampler))

    assert order(1, 0) == order(1, 0)
    orders = [order(seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert all(sorted(one) == list(range(50)) for one in orders)
    assert len({tuple(one) for one in orders}) == 4
    unshuffled = ElasticSampler(5, 2, shuffle=False)
    assert list(unshuffled) == [[0, 1], [2, 3], [4]]


def test_numbers_of_numpy_are_numbers() -> None:
    ours, numpys = (
        ElasticSampler(50, 7, seed=3),
        ElasticSampler(50, numpy.int64(7), seed=numpy.int64(3)),
    )
    assert list(numpys) == list(ours)
    assert {type(value) for value in numpys.state_dict().values()} <= {int, bool, type(None)}


def compute(sampler: ElasticSampler) -> None:
    with sampler.part() as part:
        assert part.weight == 1


def test_epochs_go_on_where_the_state_is() -> None:
    sampler = ElasticSampler(10, 4)
    sampler.load_state_dict({**sampler.state_dict(), "epoch": 1, "cursor": 8})
    assert (sampler.batches_per_epoch, sampler.batches_left, len(sampler)) == (3, 1, 1)
    seen = []
    for epoch in sampler.epochs(3):
        for _ in sampler:
            seen.append((epoch, sampler.cursor))
            compute(sampler)
            sampler.advance()
    assert seen == [(1, 8), (2, 0), (2, 4), (2, 8)]


def test_an_epoch_that_nobody_commits_is_no_endless_loop() -> None:
    sampler = ElasticSampler(10, 4)
    with pytest.raises(RuntimeError, match="commit"):
        for _ in sampler.epochs(3):
            list(sampler)


def test_a_step_is_committed_once_and_whole() -> None:
    sampler = ElasticSampler(10, 4, micro_batch_size=2)
    with sampler.part() as part:
        assert (part.weight, part.last, part.samples, part.parts) == (0.5, False, 2, 2)
    with pytest.raises(RuntimeError, match="only 1"):
        sampler.advance()
    with sampler.part() as part:
        assert part.weight == 0.5
        assert part.last
    with pytest.raises(RuntimeError, match="not committed"), sampler.part():
        pass
    sampler.advance()
    assert sampler.state_dict()["cursor"] == 4


def test_a_weight_that_is_not_used_is_an_error_wherever_it_would_have_been() -> None:
    sampler = ElasticSampler(10, 4)
    with pytest.raises(RuntimeError, match=r"part\.weight \* loss"), sampler.part() as part:
        assert part.last
        assert part.samples == 4
    compute(sampler)
    sampler.advance()
    for _ in sampler:
        with pytest.raises(
            RuntimeError, match="1 micro-batches, and only 0 are done: compute each in a part"
        ):
            sampler.advance()
        compute(sampler)
        sampler.advance()


def test_a_step_has_the_samples_of_the_group_as_it_is() -> None:
    sampler = ElasticSampler(64, per_worker_batch_size=8)
    assert sampler.samples_per_step == 8
    with group(1, 2):
        assert sampler.samples_per_step == 16
    assert sampler.samples_per_step == 8


def test_state_of_another_dataset_seed_or_batch_is_refused_by_name() -> None:
    state = ElasticSampler(10, 4, seed=1).state_dict()
    ElasticSampler(10, 4, seed=1, micro_batch_size=2).load_state_dict(state)
    for other, word in (
        (ElasticSampler(11, 4, seed=1), "length was 10 and is 11 now"),
        (ElasticSampler(10, 5, seed=1), "batch_size was 4 and is 5 now"),
        (ElasticSampler(10, 4, seed=2), "seed was 1 and is 2 now"),
        (ElasticSampler(10, 4, seed=1, shuffle=False), "shuffle was True and is False now"),
    ):
        with pytest.raises(ValueError, match=word):
            other.load_state_dict(state)


def test_an_iterator_of_before_a_restore_is_of_no_use() -> None:
    sampler = ElasticSampler(10, 4)
    batches = iter(sampler)
    next(batches)
    sampler.load_state_dict(sampler.state_dict())
    with pytest.raises(RuntimeError, match="make a new one"):
        next(batches)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(TypeError, match="not Stream"):
        ElasticSampler(Stream(), 4)
    with pytest.raises(TypeError, match="not generator"):
        ElasticSampler((n for n in range(3)), 4)
    with pytest.raises(TypeError, match="integer"):
        ElasticSampler(9, 4.5)
    with pytest.raises(TypeError, match="not a SequentialSampler of it"):
        ElasticSampler(SequentialSampler(range(9)), 4)
    for arguments, word in (
        ({"data": 0, "batch_size": 4}, "empty"),
        ({"data": 9, "batch_size": 0}, "batch_size"),
        ({"data": 9, "batch_size": 3, "micro_batch_size": 0}, "micro_batch_size"),
        ({"data": 9}, "one of them"),
        ({"data": 9, "batch_size": 3, "per_worker_batch_size": 3}, "one of them"),
        ({"data": 9, "per_worker_batch_size": 3, "drop_last": True}, "drop_last"),
        (
            {"data": 9, "per_worker_batch_size": 3, "keep_micro_batch": True},
            "keep_micro_batch is for a batch_size",
        ),
        (
            {"data": 9, "batch_size": 3, "micro_batch_size": 2, "keep_micro_batch": True},
            "without a micro_batch_size",
        ),
    ):
        with pytest.raises(ValueError, match=word):
            ElasticSampler(**arguments)


def test_numbers_drawn_in_a_micro_batch_depend_on_its_samples_alone() -> None:
    def drawn(world_size: int) -> dict[int, list[float]]:
        found = {}
        for rank in range(world_size):
            sampler = ElasticSampler(24, 12, micro_batch_size=2, seed=3)
            with group(rank, world_size):
                batches = iter(sampler)
            for batch in batches:
                with sampler.part() as part:
                    numbers = torch.rand(2).tolist()
                    assert part.weight >= 0
                if part.samples:
                    found[batch[0]] = numbers
                if part.last:
                    sampler.advance()
        return found

    alone = drawn(1)
    assert len({tuple(numbers) for numbers in alone.values()}) == 12
    assert drawn(2) == drawn(4) == drawn(5) == alone


def test_seeding_can_be_left_alone() -> None:
    sampler = ElasticSampler(24, 12, seed_random=False)
    torch.manual_seed(1)
    with sampler.part() as part:
        drawn = torch.rand(2)
        assert part.weight == 1
    assert torch.equal(drawn, torch.manual_seed(1) and torch.rand(2))


@pytest.mark.process
def test_dataloader_with_workers_gets_every_sample_once_while_it_runs_ahead() -> None:
    data = TensorDataset(torch.arange(23))
    sampler = ElasticSampler(data, 5)
    loader = DataLoader(
        data, batch_sampler=sampler, num_workers=1, prefetch_factor=3, persistent_workers=True
    )
    for epoch in sampler.epochs(2):
        seen: list[int] = []
        for (numbers,) in loader:
            compute(sampler)
            seen += numbers.tolist()
            sampler.advance()
        assert sorted(seen) == list(range(23)), epoch
