"""What counts as a change of rank 0's values; that they reach all pods is shown by test_state_memory."""

from typing import Any

import pytest
import torch
from elastic_pytorch.state.values.plain_values import PlainValues

pytestmark = pytest.mark.torch


class Others:
    """A group, as rank 0 sees it."""

    rank = 0

    def __init__(self) -> None:
        self.sent = 0

    def first(self, number: int) -> int:
        return number

    def broadcast(self, tree: Any, root: int) -> Any:
        assert root == 0
        self.sent += 1
        return tree


def set_best(values: dict[str, Any]) -> None:
    values["best"] = 2.0


def add_to_list(values: dict[str, Any]) -> None:
    values["history"].append(3)


def replace_tensor(values: dict[str, Any]) -> None:
    values["weights"] = values["weights"].clone()


def write_to_tensor(values: dict[str, Any]) -> None:
    values["weights"][0] = 5


def write_to_view(values: dict[str, Any]) -> None:
    values["weights"].view(2, 2).add_(1)


def look_at_it(values: dict[str, Any]) -> None:
    float(values["weights"].sum() + values["best"])


def set_the_same(values: dict[str, Any]) -> None:
    values["best"] = 1.0


@pytest.mark.parametrize("change", [set_best, add_to_list, replace_tensor, write_to_tensor, write_to_view])
def test_changes_are_sent_once(change: Any) -> None:
    values = {"best": 1.0, "history": [1, 2], "weights": torch.zeros(4)}
    group = Others()
    shared = PlainValues(group, values)
    change(values)
    assert not shared.take_over(values), "rank 0 has them already"
    assert group.sent == 1
    shared.take_over(values)
    assert group.sent == 1


@pytest.mark.parametrize("change", [look_at_it, set_the_same])
def test_what_is_no_change_is_not_sent(change: Any) -> None:
    values = {"best": 1.0, "weights": torch.zeros(4)}
    group = Others()
    shared = PlainValues(group, values)
    change(values)
    shared.take_over(values)
    assert group.sent == 0


def test_tensor_that_comes_to_lie_where_another_one_lay_is_a_change() -> None:
    values = {"weights": torch.zeros(1000)}
    group = Others()
    shared = PlainValues(group, values)
    for number in range(20):
        values["weights"] = None
        values["weights"] = torch.full((1000,), float(number))
        shared.take_over(values)
        assert group.sent == number + 1
