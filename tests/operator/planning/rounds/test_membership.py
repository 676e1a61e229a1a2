import random
from collections.abc import Sequence

from elastic_pytorch_operator.planning.rounds.membership import choose_group, torn_workers
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.planning.rounds.test_next_round import candidate, ready
from tests.situations import situations


def indices(candidates: Sequence[Candidate]) -> list[int]:
    return [candidate.index for candidate in candidates]


@situations(
    "stay, joiners, wanted, expected",
    {
        "the first group, in order": ([], [0, 1, 2, 3], 4, [0, 1, 2, 3]),
        "a unit that lacks a worker waits": ([], [0, 2, 3], 4, [2, 3]),
        "no unit is whole": ([], [0, 3, 4], 4, []),
        "a member is lost: its unit leaves": ([0, 2, 3, 4, 5], [], 6, [2, 3, 4, 5]),
        "a replacement is ready in the same round": ([0, 2, 3, 4, 5], [1], 6, [2, 3, 4, 5, 0, 1]),
        "a spare unit takes over": ([0, 2, 3, 4, 5], [6, 7], 6, [2, 3, 4, 5, 6, 7]),
        "a replacement goes before a spare unit": ([0, 2, 3, 4, 5], [1, 6, 7], 6, [2, 3, 4, 5, 0, 1]),
        "units that stay whole go before those with newcomers": ([0, 2, 3], [1, 6, 7], 2, [2, 3]),
        "more units than are wanted": ([2, 3, 0, 1], [4, 5], 4, [2, 3, 0, 1]),
        "two members of different units are lost": ([0, 3, 4, 5], [], 6, [4, 5]),
    },
)
def test_groups_of_whole_units(stay: list[int], joiners: list[int], wanted: int, expected: list[int]) -> None:
    assert indices(choose_group(ready(*stay), ready(*joiners), wanted, (2, 4, 6), 2)) == expected


def test_allowed_sizes_hold_beside_units() -> None:
    assert indices(choose_group([], ready(*range(6)), 8, (4, 8), 2)) == [0, 1, 2, 3]


def test_torn_workers_are_ready_and_lack_others_of_their_unit() -> None:
    workers = [*ready(0, 2, 3), candidate(1, "starting"), candidate(4, "gone")]
    assert torn_workers(workers, 2) == {"w0"}
    assert torn_workers(workers, 1) == frozenset()


@given(
    unit=st.integers(1, 4),
    there=st.sets(st.integers(0, 15)),
    members=st.sets(st.integers(0, 15)),
    wanted=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_units_are_whole_and_none_that_could_train_is_left_out(
    unit: int, there: set[int], members: set[int], wanted: int, seed: int
) -> None:
    order = sorted(members)
    random.Random(seed).shuffle(order)
    stay = ready(*(index for index in order if index in there))
    group = indices(choose_group(stay, ready(*sorted(there - members)), wanted * unit, (), unit))
    whole = [first for first in range(0, 16 + unit, unit) if there.issuperset(range(first, first + unit))]
    assert len(group) == unit * min(wanted, len(whole))
    assert set(group) <= there
    for first in {index - index % unit for index in group}:
        assert set(range(first, first + unit)) <= set(group)
