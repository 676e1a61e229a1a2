"""Who is in a group, and with which rank: tables of single workers and of units, and what always holds."""

import random
from collections.abc import Sequence

import pytest
from elastic_pytorch_operator.planning.rounds.membership import assign_ranks, choose_group, torn_workers
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hypothesis_examples import examples
from tests.operator.planning.rounds.test_next_round import candidate, ready


def indices(candidates: Sequence[Candidate]) -> list[int]:
    return [candidate.index for candidate in candidates]


def ranks(members: Sequence[int]) -> dict[str, int]:
    return {f"w{index}": rank for rank, index in enumerate(members)}


@pytest.mark.parametrize(
    ("members", "group", "expected"),
    [
        ([], [2, 0, 1], [0, 1, 2]),
        (["w0", "w1", "w2"], [0, 1, 2, 3], [0, 1, 2, 3]),
        (["w0", "w1", "w2"], [1, 2], [2, 1]),
        (["w2", "w1"], [0, 1, 2], [2, 1, 0]),
        (["w0", "w1", "w2", "w3"], [3], [3]),
        (["w0", "w1"], [2, 3], [2, 3]),
    ],
)
def test_survivors_keep_their_ranks(members: list[str], group: list[int], expected: list[int]) -> None:
    assert indices(assign_ranks({w: rank for rank, w in enumerate(members)}, ready(*group))) == expected


@pytest.mark.parametrize(
    ("situation", "stay", "joiners", "wanted", "expected"),
    [
        ("the first group, in order", [], [0, 1, 2, 3], 4, [0, 1, 2, 3]),
        ("a unit that lacks a worker waits", [], [0, 2, 3], 4, [2, 3]),
        ("no unit is whole", [], [0, 3, 4], 4, []),
        ("a member is lost: its unit leaves", [0, 2, 3, 4, 5], [], 6, [2, 3, 4, 5]),
        ("a replacement is ready in the same round", [0, 2, 3, 4, 5], [1], 6, [2, 3, 4, 5, 0, 1]),
        ("a spare unit takes over", [0, 2, 3, 4, 5], [6, 7], 6, [2, 3, 4, 5, 6, 7]),
        ("a replacement goes before a spare unit", [0, 2, 3, 4, 5], [1, 6, 7], 6, [2, 3, 4, 5, 0, 1]),
        ("units that stay whole go before those with newcomers", [0, 2, 3], [1, 6, 7], 2, [2, 3]),
        ("more units than are wanted", [2, 3, 0, 1], [4, 5], 4, [2, 3, 0, 1]),
        ("two members of different units are lost", [0, 3, 4, 5], [], 6, [4, 5]),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else None,
)
def test_groups_of_whole_units(situation: str, stay: list[int], joiners: list[int], wanted: int, expected: list[int]) -> None:
    assert indices(choose_group(ready(*stay), ready(*joiners), wanted, (2, 4, 6), 2)) == expected, situation


def test_allowed_sizes_hold_beside_units() -> None:
    assert indices(choose_group([], ready(*range(6)), 8, (4, 8), 2)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("situation", "members", "group", "expected"),
    [
        ("in order", [], [3, 2, 1, 0], [0, 1, 2, 3]),
        ("units keep their places", [4, 5, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5], [4, 5, 0, 1, 2, 3]),
        ("the last unit fills the place of the first", [0, 1, 2, 3, 4, 5], [2, 3, 4, 5], [4, 5, 2, 3]),
        ("a unit with a replacement keeps its place", [0, 1, 2, 3], [9, 8, 0, 1], [0, 1, 8, 9]),
        ("newcomers fill the places by index", [4, 5, 0, 1], [0, 1, 8, 9, 6, 7], [6, 7, 0, 1, 8, 9]),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else None,
)
def test_units_keep_their_places(situation: str, members: list[int], group: list[int], expected: list[int]) -> None:
    assert indices(assign_ranks(ranks(members), ready(*group), unit=2)) == expected, situation


def test_first_unit_changes_its_place_if_its_next_port_is_unknown() -> None:
    assert indices(assign_ranks(ranks([0, 1, 2, 3]), ready(0, 1, 2, 3), 29510, 2)) == [2, 3, 0, 1]
    assert indices(assign_ranks(ranks([0, 1]), ready(0, 1), 29510, 2)) == [0, 1], "its workers are in order, always"


def test_torn_workers_are_ready_and_lack_others_of_their_unit() -> None:
    workers = [*ready(0, 2, 3), candidate(1, "starting"), candidate(4, "gone")]
    assert torn_workers(workers, 2) == {"w0"}
    assert torn_workers(workers, 1) == frozenset()


@settings(max_examples=examples(200))
@given(
    unit=st.integers(1, 4),
    there=st.sets(st.integers(0, 15)),
    members=st.sets(st.integers(0, 15)),
    wanted=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_units_are_whole_and_in_order_and_none_that_could_train_is_left_out(
    unit: int, there: set[int], members: set[int], wanted: int, seed: int
) -> None:
    order = sorted(members)
    random.Random(seed).shuffle(order)
    stay = ready(*(index for index in order if index in there))
    group = choose_group(stay, ready(*sorted(there - members)), wanted * unit, (), unit)
    whole = [first for first in range(0, 16 + unit, unit) if there.issuperset(range(first, first + unit))]
    assert len(group) == unit * min(wanted, len(whole))
    ranked = indices(assign_ranks(ranks(order), group, unit=unit))
    assert sorted(ranked) == sorted(indices(group))
    for first in range(0, len(ranked), unit):
        assert ranked[first] % unit == 0
        assert ranked[first : first + unit] == list(range(ranked[first], ranked[first] + unit))
