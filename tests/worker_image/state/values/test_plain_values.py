"""What counts as a change of rank 0's values; test_state_memory shows who gets them."""

from collections import defaultdict, deque
from typing import Any

import numpy
import pytest
import torch
from elastic_pytorch.state.values.plain_values import PlainValues, placed

pytestmark = pytest.mark.torch


class Others:
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


@pytest.mark.parametrize(
    "change", [set_best, add_to_list, replace_tensor, write_to_tensor, write_to_view]
)
def test_changes_are_sent_once(change: Any) -> None:
    values = {"best": 1.0, "history": [1, 2], "weights": torch.zeros(4)}
    group = Others()
    shared = PlainValues(group, values)
    change(values)
    shared.take_over(values)
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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([1], [1, 2, 3]),
        ([1, 2, 3], [4]),
        ({"a": 1, "b": 2}, {"c": 3, "a": 4}),
        (deque([1, 2], maxlen=3), deque([3], maxlen=3)),
        (defaultdict(int, {"a": 1}), defaultdict(int, {"b": 2})),
        ({1, 2}, {3}),
    ],
)
def test_collection_that_the_script_has_a_name_for_gets_the_content(old: Any, new: Any) -> None:
    values = {"kept": old}
    placed({"kept": new}, values)
    assert values["kept"] is old
    assert old == new
    assert list(old) == list(new), "in the same order"


def test_collections_within_collections_stay_what_they_are() -> None:
    losses: list[float] = []
    log = {"losses": losses, "best": None}
    placed({"losses": [0.5], "best": (1, 2)}, log)
    assert log == {"losses": [0.5], "best": (1, 2)}
    assert log["losses"] is losses


@pytest.mark.parametrize(
    ("old", "new"),
    [(None, [1]), ([1], None), ([1], (1,)), ((1, [2]), (3, [4])), (1, 2), ("a", "b")],
)
def test_other_value_is_the_new_one(old: Any, new: Any) -> None:
    assert placed(new, old) == new


def test_value_that_is_there_already_is_left() -> None:
    values = {"history": [1, 2], "seen": {3}}
    assert placed({**values}, values) == {"history": [1, 2], "seen": {3}}


def test_tensor_is_another_one_as_the_old_one_may_be_a_weight() -> None:
    weight, best = torch.nn.Parameter(torch.zeros(2)), torch.ones(2)
    assert torch.equal(placed({"best": best}, {"best": weight})["best"], best)
    assert not weight.any()


def test_write_to_an_array_of_numpy_which_counts_none_is_a_change() -> None:
    values = {"history": numpy.zeros(3)}
    group = Others()
    shared = PlainValues(group, values)
    values["history"][1] = 0.5
    shared.take_over(values)
    assert group.sent == 1
