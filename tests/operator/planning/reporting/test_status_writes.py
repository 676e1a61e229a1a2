from typing import Any

import pytest
from elastic_pytorch_operator.planning.reporting.goodput import Account
from elastic_pytorch_operator.planning.reporting.status_writes import (
    DETAILS_WRITE_SECONDS,
    PROGRESS_WRITES_PER_SECOND,
    SAME_WRITE_SECONDS,
    Written,
    next_progress_write,
    status_write,
    write_status_at,
)

from tests.operator.builders import NOW, TIME, a_job, observed
from tests.situations import situations

WRITTEN = {"round": 1, "progress": {"step": 1}}
CHANGE = {"time": TIME, "round": 1, "replicas": 2, "cause": "FirstRound"}
SAMPLE = {"time": TIME, "loss": "2.5"}


@situations(
    "new, written, due",
    {
        "nothing new": (WRITTEN, WRITTEN, None),
        "news, at once": ({**WRITTEN, "round": 2}, WRITTEN, NOW),
        "the first write, at once": ({**WRITTEN, "round": 2}, None, NOW),
        "the API server has stored something else": (
            {**WRITTEN, "round": 2},
            {**WRITTEN, "round": 2},
            NOW - 1 + SAME_WRITE_SECONDS,
        ),
        "progress, when its time has come": ({**WRITTEN, "progress": {}}, WRITTEN, NOW + 3),
        "slow ranks, with progress": ({**WRITTEN, "stragglers": [{"rank": 1}]}, WRITTEN, NOW + 3),
        "progress with news, at once": ({**WRITTEN, "progress": {}, "round": 2}, WRITTEN, NOW),
    },
)
def test_time_of_the_next_write(
    new: dict[str, Any], written: dict[str, Any] | None, due: float | None
) -> None:
    assert write_status_at(WRITTEN, new, written, NOW - 1, NOW, NOW + 3) == due


@situations(
    "changes, seconds, history",
    {
        "progress may wait, and so may its sample": (
            {"progress": {"step": 2, "loss": "2.5"}},
            1.0,
            None,
        ),
        "it is written with progress": (
            {"progress": {"step": 2, "loss": "2.5"}},
            9.0,
            [CHANGE, SAMPLE],
        ),
        "or with other news": (
            {"progress": {"step": 2, "loss": "2.5"}, "failures": 1},
            1.0,
            [CHANGE, SAMPLE],
        ),
        "no step was made": ({"progress": {"step": 1, "loss": "2.5"}}, 9.0, [CHANGE]),
        "nothing is measured": ({"progress": {"step": 2}}, 9.0, [CHANGE]),
        "nothing trains": ({"progress": {"step": 2, "loss": "2.5"}, "worldSize": 0}, 9.0, [CHANGE]),
    },
)
def test_sample_comes_with_a_write_that_is_due(
    changes: dict[str, Any], seconds: float, history: list[Any] | None
) -> None:
    old = {**WRITTEN, "worldSize": 2, "history": [CHANGE]}
    writes, due = status_write(
        a_job(status=old),
        {**old, **changes},
        Account(NOW, None, NOW),
        observed(),
        Written(old, NOW - seconds),
    )
    assert [write.status["history"] for write in writes] == ([] if history is None else [history])
    assert (due is None) == bool(writes)


def a_condition(reason: str, message: str) -> dict[str, str]:
    return {"type": "Running", "status": "True", "reason": reason, "message": message}


@situations(
    "changes, waits",
    {
        "counts and workers": (
            {
                "replicas": 7,
                "readyReplicas": 2,
                "workers": [{"name": "w0"}],
                "unlistedWorkers": {},
                "operatorState": {},
            },
            True,
        ),
        "words": ({"conditions": [a_condition("RoundRunning", "3 of 4 workers train")]}, True),
        "a reason": ({"conditions": [a_condition("BackingOff", "2 of 4 workers train")]}, False),
        "the state, too": ({"workers": [], "state": "Failed"}, False),
        "a round, too": ({"workers": [], "round": 9}, False),
    },
)
def test_details_are_written_once_a_second(changes: dict[str, Any], waits: bool) -> None:
    old = {**WRITTEN, "conditions": [a_condition("RoundRunning", "2 of 4 workers train")]}
    new = {**old, **changes}
    due = DETAILS_WRITE_SECONDS if waits else 0.25
    assert write_status_at(old, new, old, NOW, NOW + 0.25, NOW) == NOW + due
    assert write_status_at(old, new, old, NOW, NOW + 5, NOW) == NOW + 5, (
        "it has waited for long enough"
    )
    assert write_status_at(old, new, None, 0.0, NOW, NOW) == NOW, "the first write"


@pytest.mark.parametrize(
    ("reporting_jobs", "seconds"), [(0, 5.0), (1, 5.0), (50, 5.0), (51, 5.1), (1000, 100.0)]
)
def test_jobs_write_progress_less_often_the_more_there_are(
    reporting_jobs: int, seconds: float
) -> None:
    first = next_progress_write("uid", NOW, reporting_jobs)
    second = next_progress_write("uid", first + 0.01, reporting_jobs)
    assert second - first == pytest.approx(seconds)


@pytest.mark.parametrize("jobs", [1, 50, 1000])
def test_progress_of_all_jobs_is_written_evenly(jobs: int) -> None:
    interval, writes = max(5.0, jobs / PROGRESS_WRITES_PER_SECOND), []
    for number in range(jobs):
        first = next_progress_write(f"uid-{number}", NOW, jobs)
        assert NOW < first <= NOW + interval
        assert next_progress_write(f"uid-{number}", first, jobs) == pytest.approx(first + interval)
        assert next_progress_write(f"uid-{number}", first - 0.01, jobs) == pytest.approx(first)
        writes.append(first)
    for second in range(int(interval)):
        assert (
            sum(NOW + second < at <= NOW + second + 1 for at in writes)
            <= 2.5 * PROGRESS_WRITES_PER_SECOND
        )
