"""One decision about the size of a job at a time; `test_autoscaled_day.py` plays whole days."""

from collections.abc import Sequence
from typing import Any

import pytest
from elastic_pytorch_operator.planning.scaling.autoscale import (
    MAX_DOUBLINGS,
    MIN_REST_SECONDS,
    ROOM_SECONDS,
    Autoscale,
    Group,
    decide,
    step_down,
    step_up,
)
from elastic_pytorch_operator.planning.scaling.throughput import MAX_WINDOWS, MIN_WINDOWS, Measurement, Throughput

from tests.operator.builders import NOW

BOUND = 0.7
LINEAR = {1: 10.0, 2: 20.0, 3: 30.0, 4: 40.0}
SATURATED = {1: 10.0, 2: 20.0, 3: 30.0, 4: 30.5}


def group(
    size: int,
    speeds: dict[int, float],
    *,
    windows: int = MIN_WINDOWS,
    spread: float = 0.0,
    sizes: Sequence[int] = range(1, 5),
    at: dict[int, float] | None = None,
    **fields: Any,
) -> Group:
    """A group of some size, when some other sizes have been measured."""
    rates = tuple(speeds.get(size, 0.0) * (1 + spread * (-1) ** n) for n in range(windows))
    known = {n: Throughput(n, speed, spread * speed / 3, (at or {}).get(n, NOW - 100)) for n, speed in speeds.items()}
    return Group(sizes, size, Measurement(1, size, rates=rates, at=NOW), known, **fields)


def only(speeds: dict[int, float], *sizes: int) -> dict[int, float]:
    return {size: speeds[size] for size in sizes}


def test_smaller_group_is_tried_first() -> None:
    state, told = decide(Autoscale(), group(4, only(LINEAR, 4)), BOUND, NOW)
    assert (state.trying, state.replicas, state.limit(4)) == (3, None, 3)
    assert told == "Tries 3 instead of 4 workers, to measure what the others add"


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (group(4, only(LINEAR, 4), windows=MIN_WINDOWS - 1), "it was not measured long enough"),
        (group(3, only(LINEAR, 3)), "a worker is lost"),
        (group(0, {}), "nothing trains"),
        (group(4, {}, windows=0), "nothing was measured"),
        (group(4, only(LINEAR, 4), sizes=[4]), "there is no other size"),
    ],
)
def test_nothing_is_tried_when(seen: Group, why: str) -> None:
    assert decide(Autoscale(), seen, BOUND, NOW) == (Autoscale(), None), why


def test_nothing_is_tried_during_a_rest() -> None:
    resting = Autoscale(next_at=NOW + 1)
    assert decide(resting, group(4, only(LINEAR, 4)), BOUND, NOW) == (resting, None)
    assert decide(resting, group(4, only(LINEAR, 4)), BOUND, NOW + 1)[0].trying == 3


@pytest.mark.parametrize(
    ("replicas", "trying", "speeds", "kept"),
    [
        (None, 3, LINEAR, None),  # of 4: the 4th helps
        (None, 3, SATURATED, 3),
        (3, 2, SATURATED, 3),
        (3, 4, SATURATED, 3),
        (3, 4, LINEAR, None),
        (2, 3, SATURATED, 3),
        (2, 1, {1: 10.0, 2: 12.0}, 1),
    ],
)
def test_verdict(replicas: int | None, trying: int, speeds: dict[int, float], kept: int | None) -> None:
    state, told = decide(Autoscale(replicas, trying, began_at=NOW - 90), group(trying, speeds), BOUND, NOW)
    assert (state.replicas, state.trying) == (kept, None)
    assert "efficiency" in told
    assert "minEfficiencyPercent is 70" in told


def test_verdict_says_why() -> None:
    trying = Autoscale(None, 3, began_at=NOW - 90)
    assert decide(trying, group(3, SATURATED), BOUND, NOW)[1] == (
        "Gives back 1 of 4 workers: the 4th worker added 2 % (30 to 30.5 samples/s), an efficiency of 0.05; "
        "resizePolicy.autoscale.minEfficiencyPercent is 70"
    )
    assert decide(trying, group(3, LINEAR), BOUND, NOW)[1].startswith("Keeps 4 workers: the 4th worker added 33 % ")


def test_decision_looks_at_some_numbers_of_windows_only() -> None:
    trying, seen = Autoscale(None, 3), (group(3, SATURATED, windows=windows) for windows in range(1, MAX_WINDOWS + 1))
    decided = [n for n, one in enumerate(seen, 1) if decide(trying, one, BOUND, NOW)[1]]
    assert decided == [MIN_WINDOWS, 12, MAX_WINDOWS]


@pytest.mark.parametrize(("replicas", "trying"), [(None, 3), (3, 4)])
def test_unsure_comparison_goes_on_and_then_keeps_the_size_before(replicas: int | None, trying: int) -> None:
    before = Autoscale(replicas, trying, began_at=NOW - 90)
    state, told = decide(before, group(trying, LINEAR, spread=0.3), BOUND, NOW)
    assert (state.replicas, state.trying, told) == (replicas, trying, None)
    state, told = decide(before, group(trying, LINEAR, spread=0.3, windows=MAX_WINDOWS), BOUND, NOW)
    assert (state.replicas, state.trying) == (replicas, None)
    assert "does not tell whether minEfficiencyPercent 70 is met" in told


def test_worker_at_the_bound_is_neither_given_back_nor_taken() -> None:
    """The group does not change between two sizes again and again."""
    at_the_bound = {3: 30.0, 4: 37.0}
    for replicas, trying in ((None, 3), (3, 4)):
        for windows in (MIN_WINDOWS, MAX_WINDOWS):
            seen = group(trying, at_the_bound, spread=0.02, windows=windows)
            state, _ = decide(Autoscale(replicas, trying), seen, BOUND, NOW)
            assert state.replicas == replicas


def test_loss_decides_nothing() -> None:
    trying = Autoscale(3, 4, began_at=NOW - 9999, reached=True)
    assert decide(trying, group(3, LINEAR), BOUND, NOW) == (trying, None)
    lower = Autoscale(None, 3, began_at=NOW - 9999)
    assert decide(lower, group(2, LINEAR), BOUND, NOW) == (lower, None)


def test_workers_that_find_no_room_are_given_up() -> None:
    trying = Autoscale(3, 4, began_at=NOW - ROOM_SECONDS + 1)
    assert decide(trying, group(3, LINEAR), BOUND, NOW) == (trying, None)
    state, told = decide(trying, group(3, LINEAR), BOUND, NOW + 1)
    assert (state.replicas, state.trying, state.limit(4)) == (3, None, 3)
    assert told == "Keeps 3 workers: there was no room for 4"
    assert state.next_at == NOW + 1 + MIN_REST_SECONDS


@pytest.mark.parametrize("change_seconds", [1.0, 60.0, 600.0])
def test_changes_cost_a_twentieth_of_the_time_at_most(change_seconds: float) -> None:
    fruitless, _ = decide(Autoscale(None, 3, change_seconds=change_seconds), group(3, LINEAR), BOUND, NOW)
    assert fruitless.next_at - NOW >= 2 * change_seconds * 20
    fruitful, _ = decide(Autoscale(None, 3, change_seconds=change_seconds), group(3, SATURATED), BOUND, NOW)
    assert fruitful.next_at - NOW == pytest.approx(change_seconds * 20)


def test_rests_double_until_a_try_changes_something() -> None:
    state, rests = Autoscale(), []
    for _ in range(8):
        state, _ = decide(Autoscale(None, 3, unchanged=state.unchanged), group(3, LINEAR), BOUND, NOW)
        rests.append(state.next_at - NOW)
    assert rests[:4] == [600, 1200, 2400, 4800]
    assert set(rests[MAX_DOUBLINGS:]) == {MIN_REST_SECONDS * 2**MAX_DOUBLINGS}
    assert decide(Autoscale(None, 3, unchanged=8), group(3, SATURATED), BOUND, NOW)[0].unchanged == 0


def test_neighbour_that_was_measured_first_is_tried_next() -> None:
    def next_try(at: dict[int, float]) -> int | None:
        return decide(Autoscale(3), group(3, only(LINEAR, 3, *at), at=at), BOUND, NOW)[0].trying

    assert next_try({}) == 2
    assert next_try({2: NOW - 10}) == 4
    assert next_try({2: NOW - 10, 4: NOW - 5}) == 2
    assert next_try({2: NOW - 5, 4: NOW - 10}) == 4


@pytest.mark.parametrize(
    ("sizes", "state", "expected"),
    [
        (range(1, 3), Autoscale(3), (None, 2)),  # replicas was lowered to 2
        (range(1, 4), Autoscale(3), (None, 3)),
        (range(1, 9), Autoscale(3), (3, 3)),  # and raised to 8
        (range(1, 4), Autoscale(2, 4), (2, 2)),
        ([2, 4, 8], Autoscale(3), (2, 2)),  # allowedReplicas was set
        ([4, 8], Autoscale(3), (None, 8)),  # minReplicas was raised
    ],
)
def test_spec_decides(sizes: Sequence[int], state: Autoscale, expected: tuple[int | None, int]) -> None:
    found, told = decide(state, group(0, {}, sizes=sizes), BOUND, NOW)
    assert (found.replicas, found.limit(sizes[-1]), told) == (*expected, None)


@pytest.mark.parametrize(
    ("size", "sizes", "below", "above"),
    [
        (4, range(1, 9), 3, 5),
        (8, range(1, 65), 6, 10),
        (64, range(1, 65), 48, None),
        (1, range(1, 9), None, 2),
        (8, [2, 4, 8, 16], 4, 16),
        (16, [14, 15, 16, 17, 18], 14, 18),
    ],
)
def test_sizes_that_are_tried(size: int, sizes: Sequence[int], below: int | None, above: int | None) -> None:
    assert (step_down(size, sizes), step_up(size, sizes)) == (below, above)


def test_measurements_that_lie_too_far_apart_end_a_try() -> None:
    seen = group(3, LINEAR, at={4: NOW - 9999})
    state, told = decide(Autoscale(None, 3), seen, BOUND, NOW)
    assert (state.trying, state.limit(4)) == (None, 4)
    assert "too far apart" in told
