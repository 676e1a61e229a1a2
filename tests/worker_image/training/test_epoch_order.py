"""The order of an epoch's samples: what a torch Sampler may give, and what ranks may not."""

from typing import Any

import numpy
import pytest
import torch
from elastic_pytorch.training.epoch_order import Described, EpochOrder, SamplerOrder
from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

from tests.worker_image.scripts.own_orders import OfEpoch

pytestmark = pytest.mark.torch

LENGTH = 12


def test_an_epoch_has_one_order_and_another_epoch_or_seed_another() -> None:
    orders = EpochOrder(100, shuffle=True, seed=7)
    first = orders.of(0).tolist()
    assert sorted(first) == list(range(100))
    assert orders.of(1).tolist() != first
    assert orders.of(0).tolist() == first == EpochOrder(100, shuffle=True, seed=7).of(0).tolist()
    assert EpochOrder(100, shuffle=True, seed=8).of(0).tolist() != first


@pytest.mark.parametrize(
    "given",
    [
        [3, 1, 1],
        (3, 1, 1),
        (n for n in (3, 1, 1)),
        torch.tensor([3, 1, 1]),
        torch.tensor([3, 1, 1], dtype=torch.uint8),
        numpy.array([3, 1, 1], dtype=numpy.int32),
        list(numpy.array([3, 1, 1])),
        list(torch.tensor([3, 1, 1])),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_lists_indices_is_an_order(given: Any) -> None:
    order = SamplerOrder(LENGTH, "sampler", OfEpoch(lambda _: given))
    assert order.of(0).tolist() == [3, 1, 1]
    assert (order.samples(0), order.ends(0)) == (3, None)


def test_batches_are_an_order_and_where_each_ends() -> None:
    order = SamplerOrder(
        LENGTH,
        "batch_sampler",
        OfEpoch(lambda epoch: [[epoch, 5], torch.tensor([7]), numpy.array([0, 0, 1])]),
    )
    assert order.of(2).tolist() == [2, 5, 7, 0, 0, 1]
    assert (order.samples(2), order.ends(2)) == (6, (2, 3, 6))


def test_a_sampler_is_read_once_an_epoch_and_what_it_gave_may_be_changed_after() -> None:
    own, calls = torch.arange(LENGTH), []

    def order_of(epoch: int) -> torch.Tensor:
        calls.append(epoch)
        return own

    order = SamplerOrder(LENGTH, "sampler", OfEpoch(order_of))
    for _ in range(3):
        assert order.of(1).tolist() == list(range(LENGTH))
        own.zero_()
    assert calls == [1]


NO_LIST = "epoch 4 of {}= is no list of indices"
WHOLE = "Whole batches are given by batch_sampler="


@pytest.mark.parametrize(
    ("name", "given", "error", "words"),
    [
        ("sampler", [0.5], TypeError, rf"epoch 4 .* is of torch.float32 and shape \[1\].*{WHOLE}"),
        ("sampler", torch.ones(3, dtype=torch.bool), TypeError, "torch.bool"),
        ("sampler", [[0, 1], [2, 3]], TypeError, rf"shape \[2, 2\].*{WHOLE}"),
        ("sampler", [[0, 1], [2]], TypeError, f"no list of indices.*{WHOLE}"),
        ("sampler", "abc", TypeError, NO_LIST.format("sampler")),
        ("sampler", [], ValueError, "epoch 4 of sampler= has no samples: an epoch has one"),
        ("sampler", [0, 12], ValueError, "index 12 in place 1, and the dataset has 12 .*: 0 to 11"),
        ("sampler", [-1], ValueError, "has the index -1 in place 0"),
        ("sampler", [1, 2], ValueError, "2 samples make no batch of 3, and drop_last leaves out"),
        ("batch_sampler", [1, 2], TypeError, f"batch 0 of {NO_LIST.format('batch_sampler')}"),
        ("batch_sampler", [], ValueError, "epoch 4 of batch_sampler= has no samples"),
        ("batch_sampler", [[1], []], ValueError, "batch 1 .* is empty: each batch is a step"),
        ("batch_sampler", [[1], [2, 99]], ValueError, "has the index 99 in place 2"),
    ],
)
def test_what_is_no_order_is_refused_by_epoch_and_place(
    name: str, given: Any, error: type[Exception], words: str
) -> None:
    least = 3 if given == [1, 2] and name == "sampler" else 1
    with pytest.raises(error, match=words):
        SamplerOrder(LENGTH, name, OfEpoch(lambda _: given), least=least).of(4)


@pytest.mark.parametrize(
    "given",
    [[1, 2], SequentialSampler(range(3)), BatchSampler(SequentialSampler(range(3)), 2, False)],
)
def test_a_sampler_that_knows_no_epoch_is_refused(given: Any) -> None:
    with pytest.raises(
        TypeError,
        match=rf"needs a Sampler with set_epoch\(epoch\).* a {type(given).__name__} has none",
    ):
        SamplerOrder(LENGTH, "sampler", given)


def test_torchs_own_samplers_with_set_epoch_give_the_order() -> None:
    whole = DistributedSampler(range(LENGTH), num_replicas=1, rank=0, seed=3)
    order = SamplerOrder(LENGTH, "sampler", whole)
    batches = SamplerOrder(LENGTH, "batch_sampler", BatchSampler(whole, 5, False))
    first, second = (order.of(epoch).tolist() for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(LENGTH))
    assert first != second
    assert (batches.of(1).tolist(), batches.ends(1)) == (second, (5, 10, 12))


def test_an_error_of_the_sampler_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        SamplerOrder(LENGTH, "sampler", OfEpoch(lambda epoch: [1 // epoch])).of(0)


def told(
    epoch: int = 3, samples: int = 5, batches: int | None = None, checksum: str = "ab"
) -> Described:
    return Described(epoch, samples, batches, checksum)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([told()], None),
        ([told()] * 3, None),
        (
            [told(), told(), told(samples=6)],
            "ranks 0 and 2 .* orders for epoch 3: 5 samples, with checksum ab, and 6 samples",
        ),
        ([told(), told(checksum="cd"), told(checksum="ef")], "0 and 1 .* ab, and .* checksum cd"),
        ([told(batches=2), told(batches=3)], "5 samples in 2 batches, .*, and .* in 3 batches"),
        ([told(), told(epoch=4)], "for epochs 3 and 4"),
    ],
)
def test_ranks_that_have_different_orders_are_refused(
    ranks: list[Described], words: str | None
) -> None:
    order = SamplerOrder(LENGTH, "sampler", OfEpoch(lambda _: [0]))
    if words is None:
        order.refuse_unlike(ranks)
        return
    with pytest.raises(
        RuntimeError, match=f"{words}.*sampler= gives must depend on the epoch alone"
    ):
        order.refuse_unlike(ranks)
