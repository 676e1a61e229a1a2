"""What a job keeps of its last drill: what anybody may have written there is read, and harms nothing."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_client.reading.last_drill import ANNOTATION, MAX_BYTES, MAX_ENTRIES, LastDrill, view_drill, write_drill

from tests.plugin.recorded_cluster import recorded

TIME = "2026-11-21T18:00:00Z"
COST = {
    "cause": "WorkerLost",
    "seconds": 1.234,
    "trainsAgainAfterSeconds": 1.5,
    "stepsLost": 2,
    "workersBefore": 3,
    "workers": 2,
    "phaseSeconds": {"init": 1.0},
    "slowestPhase": "init",
}
FOUND = {
    "namespace": "team",
    "job": "lm",
    "dryRun": False,
    "recovered": False,
    "faults": [
        {"fault": "process", "does": "kill", "skipped": "no Python"},
        {"fault": "pod", "does": "delete", "interruptions": [COST], "wholeAfterSeconds": 4.0, "advice": ["a"], "error": ""},
        {"fault": "node", "does": "drain", "interruptions": [], "wholeAfterSeconds": None, "advice": ["a", "b"], "error": "no"},
    ],
}


def read(text: object) -> LastDrill | None:
    return view_drill({"annotations": {ANNOTATION: text}})


def test_what_is_written_is_read() -> None:
    drill = read(write_drill(FOUND, TIME))
    assert drill is not None
    assert (drill.time, drill.recovered, drill.advice) == (datetime(2026, 11, 21, 18, tzinfo=UTC), False, ("a", "b"))
    assert [(each.fault, each.skipped, each.error, each.whole_seconds) for each in drill.faults] == [
        ("process", "no Python", "", None),
        ("pod", "", "", 4.0),
        ("node", "", "no", None),
    ]
    [cost] = drill.faults[1].interruptions
    assert (cost.cause, cost.seconds, cost.steps_lost, cost.before, cost.workers, cost.slowest) == (
        *("WorkerLost", 1.234, 2, 3, 2, "init"),
    )


def test_long_texts_and_long_advice_still_fit() -> None:
    faults = [{"fault": "pod", "error": "x" * 5000, "interruptions": [COST] * 50, "advice": ["€" * 5000]}] * 4
    written = write_drill({"recovered": True, "faults": faults}, TIME)
    assert len(written) <= MAX_BYTES
    drill = read(written)
    assert drill is not None
    assert len(drill.faults[0].interruptions) == MAX_ENTRIES


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "",
        "no JSON",
        "[" * 8000,
        '{"faults":' * 800,
        "[]",
        '"text"',
        "{}",
        '{"faults": 7}',
        json.dumps({"faults": [], "advice": ["x" * MAX_BYTES]}),
        '{"faults": [], "n": ' + "9" * 5000 + "}",
    ],
)
def test_what_is_no_drill_is_none(text: object) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("NaN", None),
        ("Infinity", None),
        ("-1", None),
        ("1e300", None),
        ("true", None),
        ('"7"', None),
        ("9" * 400, None),
        ("7", 7),
    ],
)
def test_numbers(value: str, expected: float | None) -> None:
    drill = read('{"faults": [{"wholeAfterSeconds": ' + value + "}]}")
    assert drill is not None
    assert drill.faults[0].whole_seconds == expected


def test_other_types_than_expected_are_left_out() -> None:
    odd: dict[str, Any] = {"fault": [], "error": {}, "skipped": 7, "interruptions": ["x", {"cause": 7, "seconds": []}]}
    drill = read(json.dumps({"time": 7, "recovered": "yes", "faults": ["x", odd] * 50, "advice": [7, "ok", "x" * 900]}))
    assert drill is not None
    assert (drill.time, drill.recovered, [len(line) for line in drill.advice]) == (None, False, [2, 300])
    assert len(drill.faults) == MAX_ENTRIES / 2
    assert (drill.faults[0].fault, drill.faults[0].error, drill.faults[0].skipped) == ("", "", "")
    assert drill.faults[0].interruptions[0].cause == ""


def test_a_job_has_its_drill() -> None:
    job = recorded("whole")["job"]
    assert view_job(job).last_drill is None
    job["metadata"]["annotations"] = {ANNOTATION: write_drill(FOUND, TIME)}
    found = view_job(job).last_drill
    assert found is not None
    assert len(found.faults) == 3
    assert view_drill({"annotations": None}) is None
