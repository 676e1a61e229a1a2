"""The log of interruptions: bounded, oldest first, and nothing of it is lost."""

import json
from typing import Any

import pytest
from elastic_pytorch_operator.monitoring.job_counts import ROUND_REASONS
from elastic_pytorch_operator.planning.reporting.interruption_log import MAX_ENTRIES, MAX_SINGLE, extend_log
from elastic_pytorch_operator.planning.reporting.interruption_phases import PHASES
from hypothesis import given
from hypothesis import strategies as st

CAUSES = sorted(ROUND_REASONS)


def entry(number: int, cause: str = "WorkerLost", *, day: int = 1, steps: int | None = 3, **phases: str) -> dict[str, Any]:
    """The interruption of a round: of 2 s, from three workers to two."""
    found: dict[str, Any] = {"cause": cause, "seconds": "2.00"}
    found |= {} if steps is None else {"stepsLost": steps}
    found |= {"phaseSeconds": phases, "slowestPhase": max(phases, key=lambda phase: float(phases[phase]))} if phases else {}
    return found | {"from": 3, "to": 2, "round": number, "time": f"2026-01-{day:02}T00:00:{number % 60:02}Z"}


def logged(*entries: dict[str, Any]) -> list[Any]:
    log: list[Any] = []
    for each in entries:
        log = extend_log(log, each)
    return log


def test_what_fits_is_kept_as_it_is() -> None:
    entries = [entry(number) for number in range(MAX_ENTRIES)]
    assert logged(*entries) == entries


def test_none_is_twice() -> None:
    assert logged(entry(1), entry(2), entry(2)) == [entry(1), entry(2)]


def test_oldest_of_one_cause_and_day_become_one() -> None:
    first = entry(1, stop="0.50", wait="0.25") | {"from": 4}
    second = entry(2, "WorkerJoined", stop="0.10")
    third = entry(3, steps=None, stop="0.50", init="1.25") | {"to": 1}
    log = logged(first, second, third, *(entry(number, day=2) for number in range(4, MAX_ENTRIES + 2)))
    assert log[:3] == [
        second,
        third
        | {"count": 2, "seconds": "4.00", "stepsLost": 3, "from": 4}
        | {"phaseSeconds": {"stop": "1.00", "wait": "0.25", "init": "1.25"}, "slowestPhase": "init"},
        entry(4, day=2),
    ]
    assert len(log) == MAX_ENTRIES


def test_oldest_of_one_cause_become_one_if_no_two_are_of_one_day() -> None:
    entries = [entry(number, "WorkerLost" if number % 2 else "WorkerJoined") for number in range(MAX_ENTRIES + 1)]
    entries = [each | {"time": f"{2000 + each['round']}-01-01T00:00:00Z"} for each in entries]
    log = logged(*entries)
    assert [each["round"] for each in log] == [*range(1, MAX_ENTRIES + 1)]
    assert (log[0], log[1]["count"]) == (entries[1], 2)


def test_without_two_of_one_cause_the_oldest_is_dropped() -> None:
    entries = [entry(number, f"Cause{number}") for number in range(MAX_ENTRIES + 1)]
    assert logged(*entries) == entries[1:]


@pytest.mark.parametrize("odd", ["", "much", "inf", "nan"])
def test_what_is_no_number_counts_as_nothing(odd: str) -> None:
    log = logged(entry(0) | {"seconds": odd}, *(entry(number) for number in range(1, MAX_ENTRIES + 1)))
    assert (log[0]["count"], log[0]["seconds"]) == (2, "2.00")


HISTORY = st.lists(st.tuples(st.sampled_from(CAUSES), st.integers(0, 3), st.none() | st.integers(0, 9)), max_size=300)


@given(HISTORY)
def test_log_of_any_history_is_small_and_loses_nothing(history: list[tuple[str, int, int | None]]) -> None:
    day, log, entries = 1, list[Any](), list[Any]()
    for number, (cause, days, steps) in enumerate(history):
        day = min(28, day + days // 3)
        entries.append(entry(number, cause, day=day, steps=steps, stop="0.50", wait="1.50"))
        log = extend_log(log, entries[-1])
        assert len(log) == min(len(entries), MAX_ENTRIES)
    assert [each["round"] for each in log] == sorted(each["round"] for each in log)
    assert log[-MAX_SINGLE:] == entries[-MAX_SINGLE:]
    for cause in CAUSES:
        told, made = ([each for each in those if each["cause"] == cause] for those in (log, entries))
        assert sum(each.get("count", 1) for each in told) == len(made)
        assert sum(float(each["seconds"]) for each in told) == pytest.approx(2 * len(made))
        assert sum(each.get("stepsLost", 0) for each in told) == sum(each.get("stepsLost", 0) for each in made)
        for phase in ("stop", "wait"):
            seconds = sum(float(each["phaseSeconds"][phase]) for each in told)
            assert seconds == pytest.approx(sum(float(each["phaseSeconds"][phase]) for each in made))


def test_full_log_takes_less_than_twenty_kilobytes() -> None:
    usual = entry(1000, steps=12, **dict.fromkeys(PHASES, "12.34"))
    log = logged(*({**usual, "round": number} for number in range(1000, 1000 + MAX_ENTRIES)))
    assert len(log) == MAX_ENTRIES
    size = len(json.dumps(log, separators=(",", ":")).encode())
    print(f"{size} bytes")
    assert size < 20_000
