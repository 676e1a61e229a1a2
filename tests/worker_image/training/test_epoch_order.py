"""The order of an epoch's samples."""

import pytest
from elastic_pytorch.training.epoch_order import EpochOrder

pytestmark = pytest.mark.torch


def test_an_epoch_has_one_order_and_another_epoch_or_seed_another() -> None:
    orders = EpochOrder(100, shuffle=True, seed=7)
    first = orders.of(0).tolist()
    assert sorted(first) == list(range(100))
    assert orders.of(1).tolist() != first
    assert orders.of(0).tolist() == first == EpochOrder(100, shuffle=True, seed=7).of(0).tolist()
    assert EpochOrder(100, shuffle=True, seed=8).of(0).tolist() != first


def test_without_shuffling_each_epoch_has_the_order_of_the_dataset() -> None:
    orders = EpochOrder(5, shuffle=False, seed=7)
    assert [orders.of(epoch).tolist() for epoch in (0, 1)] == [[0, 1, 2, 3, 4]] * 2
