"""What is kept of a training for plots: all of its life, in little space."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from elastic_pytorch_operator.planning.reporting.history import COLUMNS, MAX_ENTRIES, extend_history

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def extended(
    old: dict[str, Any], seconds: float, step: int | None = None, world: int = 3, recoveries: int = 0
) -> dict[str, Any]:
    progress = {} if step is None else {"step": step, "loss": f"{1000 / (step + 1):.4g}"}
    return extend_history(old, time=at(seconds), world=world, recoveries=recoveries, progress=progress)


def test_begins_with_the_first_group() -> None:
    assert extended({}, 0, world=0) == {}
    first = extended({}, 7, 1)
    assert first == {
        "since": at(7),
        "intervalSeconds": 5,
        "steps": "1",
        "losses": "500",
        "worlds": "3",
        "recoveries": "0",
    }


def test_an_interval_keeps_what_was_known_last() -> None:
    history = extended(extended({}, 0, 1), 4, 40, world=2, recoveries=1)
    assert (history["steps"], history["worlds"], history["recoveries"]) == ("40", "2", "1")
    assert extended(history, 5, 50)["steps"] == "40 50"


def test_what_was_not_written_is_unknown_but_for_what_is_always_written() -> None:
    history = extended(extended({}, 0, 1), 21, 90, world=4, recoveries=1)
    assert history["steps"] == "1 - - - 90"
    assert history["losses"].split()[1:4] == ["-", "-", "-"]
    assert history["worlds"] == "3 3 3 3 4"
    assert history["recoveries"] == "0 0 0 0 1"


def test_jobs_that_report_no_steps_have_a_world() -> None:
    history = extended(extended({}, 0), 6, world=2)
    assert (history["steps"], history["losses"], history["worlds"]) == ("- -", "- -", "3 2")


def test_intervals_double_when_there_are_too_many() -> None:
    history: dict[str, Any] = {}
    for seconds in range(0, MAX_ENTRIES * 5 + 1, 5):
        history = extended(history, seconds, seconds)
    assert history["intervalSeconds"] == 10
    steps = [int(step) for step in history["steps"].split()]
    assert steps == [*range(5, MAX_ENTRIES * 5, 10), MAX_ENTRIES * 5]


def test_a_month_fits_in_little_more_than_a_kilobyte() -> None:
    history: dict[str, Any] = {}
    for hour in range(24 * 31):
        history = extended(history, hour * 3600, hour * 12345, recoveries=hour)
    assert len(json.dumps(history)) < 1500
    assert {len(history[name].split()) for name in COLUMNS} <= set(range(MAX_ENTRIES // 2, MAX_ENTRIES + 1))


@pytest.mark.parametrize("years", [1, 30])
def test_an_operator_that_was_long_away_goes_on(years: int) -> None:
    history = extended(extended({}, 0, 1), years * 365 * 86400, 2)
    assert history["steps"].split()[0] == "1"
    assert history["steps"].split()[-1] == "2"
    assert len(history["steps"].split()) <= MAX_ENTRIES


def test_a_clock_set_back_loses_nothing() -> None:
    history = extended(extended({}, 0, 1), 11, 20)
    assert extended(history, 6, 21)["steps"] == "1 21 20"


@pytest.mark.parametrize(
    "garbage",
    [
        {"since": "yesterday", "intervalSeconds": 5},
        {"since": at(0), "intervalSeconds": 0, "steps": "1", "losses": "1", "worlds": "1", "recoveries": "0"},
        {"since": at(0), "intervalSeconds": 5, "steps": "1 2", "losses": "1", "worlds": "1", "recoveries": "0"},
        {"since": at(0), "intervalSeconds": 5, **dict.fromkeys(COLUMNS, "1 " * 100)},
    ],
)
def test_what_is_no_history_is_begun_anew(garbage: dict[str, Any]) -> None:
    assert extended(garbage, 60, 5)["steps"] == "5"
    assert extended(garbage, 60, 5)["since"] == at(60)
