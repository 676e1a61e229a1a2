"""A script's own torch Sampler in groups that change, and what is kept of it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import elastic_pytorch
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.training.sampler import ElasticSampler
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from tests.documentation import blocks
from tests.paths import ROOT
from tests.worker_image.scripts.own_orders import OfEpoch
from tests.worker_image.torch_group import run_group
from tests.worker_image.training.test_sampler import group

pytestmark = pytest.mark.torch

LENGTH = 12
LENGTHS = torch.arange(1, 41) % 17 + 1  # of sequences
Options = dict[str, Any]


def backwards(epoch: int) -> list[int]:
    # Of another length in each epoch, and with repeats.
    return [(3 * epoch - n) % LENGTH for n in range(20 - 7 * epoch)]


def by_tokens(epoch: int) -> list[list[int]]:
    return [[0], [1, 2, 3, 4, 5, 6, 7], [epoch], [8, 9], [0, 10, 11]]


BACKWARDS: Options = {"sampler": OfEpoch(backwards)}
TOKENS: Options = {"batch_sampler": OfEpoch(by_tokens)}
SAMPLERS: dict[str, Options] = {
    "sampler": BACKWARDS | {"batch_size": 6},
    "sampler, micro": BACKWARDS | {"batch_size": 6, "micro_batch_size": 2},
    "sampler, drop_last": BACKWARDS | {"batch_size": 6, "drop_last": True},
    "sampler, kept": BACKWARDS | {"batch_size": 6, "keep_micro_batch": True},
    "sampler, growing": BACKWARDS | {"per_worker_batch_size": 2},
    "batch_sampler": TOKENS,
    "batch_sampler, micro": TOKENS | {"micro_batch_size": 2},
    "batch_sampler, kept": TOKENS | {"keep_micro_batch": True},
}


def expected(options: Options, epochs: int) -> list[list[int]]:
    steps = []
    for epoch in range(epochs):
        if "batch_sampler" in options:
            steps += by_tokens(epoch)
            continue
        samples, size = backwards(epoch), options["batch_size"]
        end = len(samples) - (len(samples) % size if options.get("drop_last") else 0)
        steps += [samples[begin : begin + size] for begin in range(0, end, size)]
    return [sorted(step) for step in steps]


def step_of(ranks: list[ElasticSampler], shares: list[Iterator[list[int]]]) -> list[int]:
    """A step's samples, sorted; each must weigh the same each time that it comes."""
    taken: list[int] = []
    says: dict[int, float] = dict.fromkeys(range(LENGTH), 0.0)
    counts = set()
    for sampler, share in zip(ranks, shares, strict=True):
        last, count = False, 0
        while not last:
            batch = next(share)
            with sampler.part() as part:
                assert part.weight == 0 or part.samples == len(batch)
                for each in batch if part.samples else ():
                    taken.append(each)
                    says[each] += part.weight / len(batch) / len(ranks)
            last, count = part.last, count + 1
        counts.add(count)
    assert len(counts) == 1, "the collectives match"
    for each, times in Counter(taken).items():
        assert says[each] == pytest.approx(times / len(taken))
    return sorted(taken)


@given(
    which=st.sampled_from(sorted(SAMPLERS)),
    lives=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), max_size=4),
)
def test_groups_of_any_size_go_on_within_an_epoch(which: str, lives: list[tuple[int, int]]) -> None:
    options, epochs = SAMPLERS[which], 2
    steps: list[list[int]] = []
    state = ElasticSampler(LENGTH, **options).state_dict()
    for world_size, how_many in [*lives, (2, 99)]:
        ranks = [ElasticSampler(LENGTH, **options) for _ in range(world_size)]
        shares: list[Iterator[list[int]]] = []
        for sampler in ranks:
            sampler.load_state_dict(state)
            next(sampler.epochs(epochs), None)
        for _ in range(how_many):
            if ranks[0].finished:
                break
            if not shares:
                for rank, sampler in enumerate(ranks):
                    with group(rank, world_size):
                        shares.append(iter(sampler))
                        assert len(sampler) >= sampler.batches_left >= 1
            steps.append(step_of(ranks, shares))
            for sampler in ranks:
                sampler.advance()
            if ranks[0].cursor == 0:
                assert [next(share, None) for share in shares] == [None] * world_size
                shares = []
        state = ranks[0].state_dict()
        assert all(sampler.state_dict() == state for sampler in ranks)
    assert state["epoch"] == epochs
    if "per_worker_batch_size" in options:
        assert Counter(index for step in steps for index in step) == Counter(
            [*backwards(0), *backwards(1)]
        )
    else:
        assert steps == expected(options, epochs)


def test_lengths_are_those_of_the_epoch_at_hand() -> None:
    sampler = ElasticSampler(LENGTH, 6, sampler=OfEpoch(backwards))
    assert (
        sampler.batches_per_epoch,
        sampler.batches_left,
        len(sampler),
        sampler.samples_per_step,
    ) == (4, 4, 4, 6)
    for _ in range(4):
        sampler.advance()
    assert (sampler.epoch, sampler.batches_per_epoch, len(list(sampler))) == (1, 3, 3)
    batches = ElasticSampler(LENGTH, batch_sampler=OfEpoch(by_tokens), micro_batch_size=2)
    assert (
        batches.batches_per_epoch,
        batches.micro_batches_per_epoch,
        batches.samples_per_step,
    ) == (5, 9, 3)
    with group(1, 2):
        assert batches.micro_batches_per_epoch == 1 + 2 + 1 + 1 + 1


def test_no_epoch_is_asked_for_that_does_not_come() -> None:
    stages = [[0, 1, 2], [3, 4]]
    sampler = ElasticSampler(LENGTH, 2, sampler=OfEpoch(lambda epoch: stages[epoch]))
    for epoch in sampler.epochs(2):
        for _ in sampler:
            with sampler.part() as part:
                assert part.weight == 1
            sampler.advance()
            state = sampler.state_dict()
            assert (
                sampler.samples_per_step,
                state["order"]["epoch"],
                state["order"]["samples"],
            ) == (2, epoch, 3 - epoch)
    assert sampler.finished
    again = ElasticSampler(LENGTH, 2, sampler=OfEpoch(lambda epoch: stages[epoch]))
    again.load_state_dict(state)
    assert list(again.epochs(2)) == []
    assert again.finished


@pytest.mark.parametrize("which", ["sampler, micro", "batch_sampler", "batch_sampler, micro"])
def test_the_loop_ends_each_epoch_where_its_order_does(which: str) -> None:
    data = TensorDataset(torch.arange(LENGTH))
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = ElasticSampler(data, **SAMPLERS[which])
    named = elastic_pytorch.State.Options(name=which.replace(", ", "-"))
    state = elastic_pytorch.State(None, named, model=model, optimizer=optimizer, sampler=sampler)
    state.restore()
    steps: list[list[int]] = [[]]
    ends = []
    for step in elastic_pytorch.steps(
        state, DataLoader(data, batch_sampler=sampler), model, epochs=2
    ):
        optimizer.zero_grad()
        for (numbers,) in step.parts:
            step.backward(model(numbers[:, None].float()).mean())
            steps[-1] += numbers.tolist()
        optimizer.step()
        steps.append([])
        if step.ends_epoch:
            ends.append(state.step)
    state.close()
    assert [sorted(step) for step in steps[:-1]] == expected(SAMPLERS[which], 2)
    assert ends == [len(expected(SAMPLERS[which], epochs)) for epochs in (1, 2)]
    assert sampler.finished


EACH_SAYS = "sampler, batch_sampler and shuffle=False each say"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (TOKENS | {"batch_size": 3}, "batch_size .*per_worker_batch_size or batch_sampler, one of"),
        (BACKWARDS | TOKENS, EACH_SAYS),
        (BACKWARDS | {"batch_size": 3, "shuffle": False}, EACH_SAYS),
        (TOKENS | {"drop_last": True}, "of batch_sampler= none is cut short"),
    ],
)
def test_what_contradicts_itself_is_refused(options: Options, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ElasticSampler(LENGTH, **options)


# --- the saved state ---


def after(steps: int, **options: Any) -> dict[str, Any]:
    sampler = ElasticSampler(options.pop("length", LENGTH), **options)
    for _ in range(steps):
        sampler.advance()
    return sampler.state_dict()


def shorter(epoch: int) -> list[int]:
    return backwards(epoch)[:-1]


def swapped(epoch: int) -> list[list[int]]:
    first, second, *rest = by_tokens(epoch)
    return [second, first, *rest]


def cut_elsewhere(epoch: int) -> list[list[int]]:
    first, second, *rest = by_tokens(epoch)
    return [[*first, *second[:1]], second[1:], *rest]


SHORTER: Options = {"sampler": OfEpoch(shorter)}


def batches(order: Any) -> Options:
    return {"batch_sampler": OfEpoch(order)}


@pytest.mark.parametrize(
    ("steps", "was", "now", "words"),
    [
        (1, BACKWARDS, SHORTER, r"epoch 0 was of 20 samples.*sampler= now gives 19 samples"),
        (4, BACKWARDS, SHORTER, "epoch 0 was of 20 samples"),  # at the end of epoch 0
        (5, BACKWARDS, SHORTER, "epoch 1 was of 13 samples"),
        (1, BACKWARDS, BACKWARDS | {"length": 13}, "length was 12 and is 13 now. Give what it was"),
        (1, BACKWARDS, BACKWARDS | {"batch_size": 5}, "batch_size was 6 and is 5 now"),
        (1, BACKWARDS, {}, "of sampler=, and is that of the seed now: give what it was, or begin"),
        (0, {}, BACKWARDS, "the order was that of the seed, and is that of sampler= now"),
        (1, TOKENS, batches(swapped), "epoch 0 was of 14 samples in 5 batches, with checksum"),
        (1, TOKENS, batches(cut_elsewhere), "14 samples in 5 batches, with checksum"),
        (1, TOKENS, batches(lambda n: by_tokens(n)[:4]), "now gives 11 samples in 4 batches"),
        (1, TOKENS, BACKWARDS, "batch_size was None and is 6 now"),
        (0, BACKWARDS, SHORTER, None),  # nothing has been computed yet
        (3, BACKWARDS, BACKWARDS | {"keep_micro_batch": True}, None),
        (3, BACKWARDS, BACKWARDS | {"micro_batch_size": 2}, None),
    ],
)
def test_another_order_is_refused_at_restore(
    steps: int, was: Options, now: Options, words: str | None
) -> None:
    def completed(options: Options) -> Options:
        return options if "batch_sampler" in options else {"batch_size": 6, **options}

    state = after(steps, **completed(was))
    options = completed(now)
    other = ElasticSampler(options.pop("length", LENGTH), **options)
    if words is None:
        other.load_state_dict(state)
        assert other.state_dict() == state
        return
    with pytest.raises(ValueError, match=words) as refused:
        other.load_state_dict(state)
    assert "begin in another folder" in str(refused.value)
    assert (other.epoch, other.cursor) == (0, 0)


def test_restore_says_what_differs(tmp_path: Path) -> None:
    def state_with(order: Any) -> Any:
        sampler = ElasticSampler(LENGTH, 4, sampler=OfEpoch(order))
        return elastic_pytorch.State(tmp_path, model=torch.nn.Linear(1, 1), sampler=sampler)

    state = state_with(backwards)
    state.restore()
    state.commit()
    state.close()
    same = state_with(backwards)
    assert same.restore() == 1
    same.close()
    with pytest.raises(
        RuntimeError,
        match=r"does not fit the sampler of this script: the order of epoch 0 was of 20 samples",
    ):
        state_with(shorter).restore()


def test_an_order_of_unseeded_numbers_is_refused_at_restore() -> None:
    def order_of(_: int) -> torch.Tensor:
        return torch.randperm(LENGTH, generator=torch.Generator().manual_seed(torch.seed() >> 1))

    state = after(1, batch_size=4, sampler=OfEpoch(order_of))
    with pytest.raises(
        ValueError, match=r"sampler= gives must depend on the epoch alone.*manual_seed"
    ):
        ElasticSampler(LENGTH, 4, sampler=OfEpoch(order_of)).load_state_dict(state)


def test_the_plain_state_is_what_it_was() -> None:
    assert after(1, batch_size=4, seed=3) == {
        "epoch": 0,
        "cursor": 4,
        "largest_group": 1,
        "length": LENGTH,
        "batch_size": 4,
        "per_worker_batch_size": None,
        "shuffle": True,
        "seed": 3,
        "drop_last": False,
    }


def differs(epoch: int) -> list[int]:
    return [dist.get_rank()] * 4 if epoch else [0, 1, 2, 3]


def train_until_refused() -> tuple[int, int, str]:
    sampler = ElasticSampler(LENGTH, 2, sampler=OfEpoch(differs))
    with pytest.raises(RuntimeError) as refused:
        for _ in sampler.epochs(2):
            for _ in sampler:
                with sampler.part() as part:
                    assert part.weight == 1
                sampler.advance()
    return sampler.epoch, sampler.cursor, str(refused.value)


@pytest.mark.process
def test_ranks_with_different_orders_stop_before_a_step_of_the_epoch_counts() -> None:
    first, second = run_group(2, train_until_refused)
    assert first == second
    assert first[:2] == (1, 0)
    assert "ranks 0 and 1 have different orders for epoch 1: 4 samples, with checksum" in first[2]


# --- the example of the documentation ---


def test_buckets_by_length() -> None:
    names: dict[str, Any] = {"torch": torch, "elastic": elastic_pytorch, "seed": 1, "batch_size": 4}
    names |= {"lengths": LENGTHS, "dataset": range(40)}
    [example] = [
        block.text
        for block in blocks(ROOT / "docs" / "use" / "data.md")
        if "ByLength" in block.text
    ]
    exec(example, names)
    batches = list(names["sampler"])
    assert sorted(index for batch in batches for index in batch) == list(range(40))
    spread = [int(LENGTHS[batch].max() - LENGTHS[batch].min()) for batch in batches]
    assert max(spread) <= 3
