import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from elastic_pytorch_operator.api.times import earlier, seconds_between
from elastic_pytorch_operator.model.status_changes import changes_of
from elastic_pytorch_operator.monitoring.job_counts import ROUND_REASONS
from elastic_pytorch_operator.planning.reporting.history import (
    MAX_BYTES,
    MAX_SAMPLES,
    WHOLE,
    add_changes,
    add_sample,
    count_interruptions,
)
from elastic_pytorch_operator.planning.reporting.interruption import (
    NO_INTERRUPTIONS,
    PHASES,
    Interruption,
    Interruptions,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.builders import NOW, TIME, a_round
from tests.operator.simulation import running
from tests.situations import situations

Entries = list[Any]
BUSY = dict.fromkeys(PHASES, 12.34)
PROGRESS = {"step": 7, "loss": "2.31", "stepsPerSecond": "12", "checkpointStep": 3}


def moment(seconds: float) -> str:
    return earlier(TIME, -seconds)


def over(
    number: int, cause: str = "WorkerLost", seconds: float = 2.0, **fields: Any
) -> Interruption:
    known = {
        "steps_lost": 3,
        "size": 2,
        "time": moment(number),
        "phases": {"stop": 0.5, "init": 1.5},
    }
    return Interruption(number, cause, NOW, seconds=seconds, **{**known, **fields})


def told(changes: Iterable[Interruption], history: Entries | None = None) -> Entries:
    history = history or add_changes([], NO_INTERRUPTIONS, a_round(0, 1, 2, number=1), {}, TIME)
    for each in changes:
        history = add_changes(history, Interruptions(last=each), None, {}, each.time)
    return history


def entry_of(change: Interruption) -> Any:
    return told([change])[-1]


def bytes_of(history: Entries) -> int:
    return len(json.dumps(history, separators=(",", ":")).encode())


FIRST = {"time": TIME, "round": 1, "replicas": 3, "cause": "FirstRound"}
LOST = {
    "time": moment(2),
    "round": 2,
    "replicas": 2,
    "cause": "WorkerLost",
    "seconds": "2.00",
    "stepsLost": 3,
}
LOST |= {"phaseSeconds": {"stop": "0.50", "init": "1.50"}}


@situations(
    "interruptions, round_, added",
    {
        "the round is in it": (NO_INTERRUPTIONS, a_round(0, 1, 2, number=1), []),
        "there is no round": (NO_INTERRUPTIONS, None, []),
        "a round that interrupts no training": (
            NO_INTERRUPTIONS,
            a_round(number=2),
            [{"time": moment(9), "round": 2, "replicas": 0, "cause": "FirstRound"}],
        ),
        "one goes on": (
            Interruptions(Interruption(2, "WorkerLost", NOW)),
            a_round(0, 1, number=2),
            [],
        ),
        "one is over": (Interruptions(last=over(2)), a_round(0, 1, number=2), [LOST]),
        "the next one goes on": (
            Interruptions(Interruption(3, "WorkerLost", NOW), over(2)),
            a_round(0, number=3),
            [LOST],
        ),
        "of a script that reports no steps": (
            Interruptions(last=over(2, steps_lost=None, phases={})),
            a_round(0, 1, number=2),
            [{name: LOST[name] for name in ("time", "round", "replicas", "cause", "seconds")}],
        ),
        "with a cause that another operator left": (
            Interruptions(last=over(2, "x" * 99)),
            None,
            [{**LOST, "cause": "x" * 32}],
        ),
    },
)
def test_change_of_the_group(interruptions: Interruptions, round_: Any, added: Entries) -> None:
    history = add_changes([FIRST], interruptions, round_, {}, moment(9))
    assert history == [FIRST, *added]
    assert add_changes(history, interruptions, round_, {}, moment(10)) == history, "it is in it"


def test_round_that_was_taken_over_without_its_reason_is_left_out() -> None:
    assert add_changes([], NO_INTERRUPTIONS, replace(a_round(0, 1), reason=""), {}, TIME) == []


def test_change_tells_loss_and_speed_of_its_moment() -> None:
    [first] = add_changes([], NO_INTERRUPTIONS, a_round(0, 1, 2, number=1), PROGRESS, TIME)
    assert first == {**FIRST, "loss": "2.31", "stepsPerSecond": "12"}


def test_samples_are_spread_over_the_time_since_the_first_change() -> None:
    history: Entries = [FIRST]
    assert add_sample([], PROGRESS, TIME) == [], "no group has formed"
    assert add_sample(history, {"step": 7}, TIME) == history, "nothing is measured"
    lasted = 0.0
    for _ in range(3000):
        lasted += 5
        history = add_sample(history, {"loss": f"{lasted:.0f}"}, moment(lasted))
        gaps = [seconds_between(a["time"], b["time"]) for a, b in pairwise(history[1:])]
        assert len(history) <= 1 + MAX_SAMPLES
        assert max(gaps, default=0.0) <= max(10.0, 0.15 * lasted)
    assert len(history) > MAX_SAMPLES / 2
    assert seconds_between(TIME, history[1]["time"]) < 0.15 * lasted


def test_newest_changes_and_the_first_stay_whole() -> None:
    many = [over(2 + n, phases=BUSY) for n in range(300)]
    history = told(many)
    assert history[0] == FIRST
    assert history[-WHOLE:] == [entry_of(each) for each in many[-WHOLE:]]


def test_phases_go_before_changes_become_one() -> None:
    for count in range(2, 40):
        history = told([over(2 + n, phases=BUSY) for n in range(count)])
        phased = ["phaseSeconds" in entry for entry in history[1:]]
        assert phased == sorted(phased), "those of the newest stay longest"
        if any("count" in entry for entry in history):
            assert sum(phased) == WHOLE


def test_changes_of_one_cause_become_one_in_the_place_of_the_later() -> None:
    causes = ["WorkerLost", "WorkerJoined"]
    history = told([over(2 + n, causes[n % 2], size=n, phases=BUSY) for n in range(200)])
    older = history[1:-WHOLE]
    counts = {
        cause: [entry.get("count", 1) for entry in older if entry["cause"] == cause]
        for cause in causes
    }
    for each in counts.values():
        assert sum(each) == 100 - WHOLE / 2
        assert each[0] > 1
        assert set(each[1:]) == {1}, "the oldest have become one"
    assert [entry["round"] for entry in history] == sorted(entry["round"] for entry in history)
    assert all(entry["replicas"] == entry["round"] - 2 for entry in older), (
        "it tells what the later one led to"
    )


@pytest.mark.parametrize("odd", ["", "much", "inf", "nan"])
def test_what_is_no_number_counts_as_nothing(odd: str) -> None:
    history: Entries = [FIRST, {**LOST, "seconds": odd}]
    history = told([over(number, phases=BUSY) for number in range(3, 103)], history)
    assert sum(float(entry.get("seconds", 0)) for entry in history) == 200


CAUSES = st.sampled_from(sorted(ROUND_REASONS)) | st.text(min_size=1, max_size=400)
CHANGES = st.builds(
    over,
    number=st.just(0),
    cause=CAUSES,
    seconds=st.floats(0, 1e9),
    steps_lost=st.none() | st.integers(0, 2**40),
    size=st.integers(0, 2**31 - 1),
    phases=st.dictionaries(st.sampled_from(PHASES), st.floats(0, 1e9)),
)
ROUNDS = st.integers(0, 2**31 - 1)
MEASURED = st.fixed_dictionaries(
    {"loss": st.floats().map("{:.4g}".format), "stepsPerSecond": st.floats(0).map("{:.2g}".format)}
)


@given(
    st.lists(
        st.tuples(CHANGES | ROUNDS, MEASURED, st.integers(0, 10**6), st.booleans()), max_size=150
    )
)
def test_any_history_is_small_and_loses_nothing_that_adds_up(events: list[Any]) -> None:
    history, lasted, made = Entries(), 0, [Interruption(0, "", NOW)] * 0
    for number, (what, measured, seconds, sampled) in enumerate(events):
        lasted += seconds
        time = moment(lasted)
        if isinstance(what, int):
            history = add_changes(
                history,
                NO_INTERRUPTIONS,
                replace(a_round(number=number + 1), size=what),
                measured,
                time,
            )
        else:
            made.append(replace(what, round=number + 1, time=time))
            history = add_changes(history, Interruptions(last=made[-1]), None, measured, time)
        if sampled:
            lasted += seconds
            history = add_sample(history, measured, moment(lasted))
        assert bytes_of(history) <= MAX_BYTES
    changes = changes_of(history)
    assert [entry["round"] for entry in changes] == sorted(entry["round"] for entry in changes)
    assert [entry["time"] for entry in history] == sorted(entry["time"] for entry in history)
    assert len(history) - len(changes) <= MAX_SAMPLES
    interruptions = [entry for entry in history if "seconds" in entry]
    assert count_interruptions(history) == len(made)
    assert sum(float(entry["seconds"]) for entry in interruptions) == pytest.approx(
        sum(each.seconds or 0.0 for each in made), abs=0.01 * len(made)
    )
    assert sum(entry.get("stepsLost", 0) for entry in interruptions) == sum(
        each.steps_lost or 0 for each in made
    )


@given(st.lists(st.sampled_from(sorted(ROUND_REASONS)), max_size=300))
def test_each_cause_keeps_its_sums(causes: list[str]) -> None:
    history = told(over(2 + number, cause, phases=BUSY) for number, cause in enumerate(causes))
    told_of: Counter[str] = Counter()
    for entry in history[1:]:
        told_of[entry["cause"]] += entry.get("count", 1)
    assert told_of == Counter(causes)


@pytest.mark.simulation
def test_next_leader_goes_on_with_the_history() -> None:
    world = running()
    world.make_progress(100)
    world.settle(30)
    before = world.status["history"]
    assert [
        (entry["round"], entry["replicas"], entry["cause"]) for entry in changes_of(before)
    ] == [(1, 3, "FirstRound")]
    world.take_over({})
    world.settle(30)
    assert changes_of(world.status["history"]) == changes_of(before)
