"""What a script may give as an order of its own, and which differences between ranks are refused."""

from typing import Any

import numpy
import pytest
import torch
from elastic_pytorch.training.own_order import Described, OwnOrder

pytestmark = pytest.mark.torch

LENGTH = 12
Options = dict[str, Any]


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
    order = OwnOrder(LENGTH, order=lambda _: given)
    assert order.of(0).tolist() == [3, 1, 1]
    assert (order.samples(0), order.ends(0)) == (3, None)


def test_batches_are_an_order_and_where_each_ends() -> None:
    order = OwnOrder(LENGTH, batches=lambda epoch: [[epoch, 5], torch.tensor([7]), numpy.array([0, 0, 1])])
    assert order.of(2).tolist() == [2, 5, 7, 0, 0, 1]
    assert (order.samples(2), order.ends(2)) == (6, (2, 3, 6))


def test_a_function_is_called_once_an_epoch_and_what_it_returned_may_be_changed_after() -> None:
    own, calls = torch.arange(LENGTH), []

    def order_of(epoch: int) -> torch.Tensor:
        calls.append(epoch)
        return own

    order = OwnOrder(LENGTH, order=order_of)
    for _ in range(3):
        assert order.of(1).tolist() == list(range(LENGTH))
        own.zero_()
    assert calls == [1]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"order": [1, 2]}, TypeError, r"order must be a function of the epoch, as in order=lambda epoch: \.\.\., not a list"),
        ({"batches": 3}, TypeError, "batches must be a function of the epoch"),
        ({"order": lambda _: None}, TypeError, r"order\(4\) is no list of indices, but a NoneType"),
        (
            {"order": lambda _: [0.5]},
            TypeError,
            r"order\(4\) is of torch.float32 and shape \[1\].*Whole batches are given by batches=",
        ),
        ({"order": lambda _: torch.ones(3, dtype=torch.bool)}, TypeError, "torch.bool"),
        ({"order": lambda _: [[0, 1], [2, 3]]}, TypeError, r"shape \[2, 2\].*Whole batches are given by batches="),
        ({"order": lambda _: [[0, 1], [2]]}, TypeError, r"no list of indices.*Whole batches are given by batches="),
        ({"order": lambda _: "abc"}, TypeError, r"order\(4\) is no list of indices, but a str"),
        ({"order": lambda _: []}, ValueError, r"order\(4\) has no samples: an epoch has one at least"),
        (
            {"order": lambda _: [0, 12]},
            ValueError,
            r"order\(4\) has the index 12 in place 1, and the dataset has 12 samples: 0 to 11",
        ),
        ({"order": lambda _: [-1]}, ValueError, r"has the index -1 in place 0"),
        ({"order": lambda _: [1, 2], "least": 3}, ValueError, "2 samples make no batch of 3, and drop_last leaves out"),
        ({"batches": lambda _: None}, TypeError, r"batches\(4\) is a NoneType, and not a list of batches"),
        ({"batches": lambda _: [1, 2]}, TypeError, r"batch 0 of batches\(4\) is no list of indices, but a int"),
        ({"batches": lambda _: []}, ValueError, r"batches\(4\) has no samples"),
        ({"batches": lambda _: [[1], []]}, ValueError, r"batch 1 of batches\(4\) is empty: each batch is a step"),
        ({"batches": lambda _: [[1], [2, 99]]}, ValueError, r"batches\(4\) has the index 99 in place 2"),
    ],
)
def test_what_is_no_order_is_refused_by_epoch_and_place(options: Options, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        OwnOrder(LENGTH, **options).of(4)


def test_an_error_of_the_function_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        OwnOrder(LENGTH, order=lambda epoch: [1 // epoch]).of(0)


def told(epoch: int = 3, samples: int = 5, batches: int | None = None, checksum: str = "ab") -> Described:
    return Described(epoch, samples, batches, checksum)


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([told()], None),
        ([told()] * 3, None),
        (
            [told(), told(), told(samples=6)],
            "ranks 0 and 2 have different orders for epoch 3: 5 samples, with checksum ab, and 6 samples",
        ),
        ([told(), told(checksum="cd"), told(checksum="ef")], "ranks 0 and 1 .* checksum ab, and 5 samples, with checksum cd"),
        ([told(batches=2), told(batches=3)], "5 samples in 2 batches, with checksum ab, and 5 samples in 3 batches"),
        ([told(), told(epoch=4)], "for epochs 3 and 4"),
    ],
)
def test_ranks_that_have_different_orders_are_refused(ranks: list[Described], words: str | None) -> None:
    order = OwnOrder(LENGTH, order=lambda _: [0])
    if words is None:
        order.refuse_unlike(ranks)
        return
    with pytest.raises(RuntimeError, match=f"{words}.*order= returns must depend on the epoch alone"):
        order.refuse_unlike(ranks)
