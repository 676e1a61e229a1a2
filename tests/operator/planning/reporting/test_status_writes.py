from typing import Any

import pytest
from elastic_pytorch_operator.planning.reporting.status_writes import (
    DETAILS_WRITE_SECONDS,
    PROGRESS_WRITES_PER_SECOND,
    SAME_WRITE_SECONDS,
    Written,
    needs_write,
    next_progress_write,
    progress_write_seconds,
    status_write,
    write_status_at,
)

from tests.operator.builders import NOW, TIME, a_job, observed

WRITTEN = {"round": 1, "progress": {"step": 1}}
CHANGE = {"time": TIME, "round": 1, "replicas": 2, "cause": "FirstRound"}
SAMPLE = {"time": TIME, "loss": "2.5"}


@pytest.mark.parametrize(
    ("new", "needed"),
    [
        pytest.param(WRITTEN, False, id="nothing new"),
        pytest.param({**WRITTEN, "progress": {"step": 2}}, False, id="progress may wait"),
        pytest.param({**WRITTEN, "stragglers": [{"rank": 1}]}, False, id="slow ranks may wait"),
        pytest.param({**WRITTEN, "history": [SAMPLE]}, False, id="a sample comes with others"),
        pytest.param({**WRITTEN, "history": [CHANGE, SAMPLE]}, True, id="a change of the group"),
        pytest.param({**WRITTEN, "round": 2}, True, id="another round"),
        pytest.param({"progress": {"step": 1}}, True, id="a field has gone"),
    ],
)
def test_need_of_a_write(new: dict[str, Any], needed: bool) -> None:
    assert needs_write(WRITTEN, new) is needed


@pytest.mark.parametrize(
    ("new", "written", "due"),
    [
        pytest.param(WRITTEN, WRITTEN, None, id="nothing new"),
        pytest.param({**WRITTEN, "round": 2}, WRITTEN, NOW, id="news, at once"),
        pytest.param({**WRITTEN, "round": 2}, None, NOW, id="the first write, at once"),
        pytest.param(
            {**WRITTEN, "round": 2},
            {**WRITTEN, "round": 2},
            NOW - 1 + SAME_WRITE_SECONDS,
            id="the API server has stored something else",
        ),
        pytest.param({**WRITTEN, "progress": {}}, WRITTEN, NOW + 3, id="progress, when its time has come"),
        pytest.param({**WRITTEN, "stragglers": [{"rank": 1}]}, WRITTEN, NOW + 3, id="slow ranks, with progress"),
        pytest.param({**WRITTEN, "progress": {}, "round": 2}, WRITTEN, NOW, id="progress with news, at once"),
    ],
)
def test_time_of_the_next_write(new: dict[str, Any], written: dict[str, Any] | None, due: float | None) -> None:
    assert write_status_at(WRITTEN, new, written, NOW - 1, NOW, NOW + 3) == due


@pytest.mark.parametrize(
    ("changes", "seconds", "history"),
    [
        pytest.param({"progress": {"step": 2, "loss": "2.5"}}, 1.0, None, id="progress may wait, and so may its sample"),
        pytest.param({"progress": {"step": 2, "loss": "2.5"}}, 9.0, [CHANGE, SAMPLE], id="it is written with progress"),
        pytest.param({"progress": {"step": 2, "loss": "2.5"}, "failures": 1}, 1.0, [CHANGE, SAMPLE], id="or with other news"),
        pytest.param({"progress": {"step": 1, "loss": "2.5"}}, 9.0, [CHANGE], id="no step was made"),
        pytest.param({"progress": {"step": 2}}, 9.0, [CHANGE], id="nothing is measured"),
        pytest.param({"progress": {"step": 2, "loss": "2.5"}, "worldSize": 0}, 9.0, [CHANGE], id="nothing trains"),
    ],
)
def test_sample_comes_with_a_write_that_is_due(changes: dict[str, Any], seconds: float, history: list[Any] | None) -> None:
    old = {**WRITTEN, "worldSize": 2, "history": [CHANGE]}
    writes, due = status_write(a_job(status=old), {**old, **changes}, observed(), Written(old, NOW - seconds))
    assert [write.status["history"] for write in writes] == ([] if history is None else [history])
    assert (due is None) == bool(writes)


def a_condition(reason: str, message: str) -> dict[str, str]:
    return {"type": "Running", "status": "True", "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        pytest.param(
            {"replicas": 7, "readyReplicas": 2, "workers": [{"name": "w0"}], "unlistedWorkers": {}, "operatorState": {}},
            True,
            id="counts and workers",
        ),
        pytest.param({"conditions": [a_condition("RoundRunning", "3 of 4 workers train")]}, True, id="words"),
        pytest.param({"conditions": [a_condition("BackingOff", "2 of 4 workers train")]}, False, id="a reason"),
        pytest.param({"workers": [], "state": "Failed"}, False, id="the state, too"),
        pytest.param({"workers": [], "round": 9}, False, id="a round, too"),
    ],
)
def test_details_are_written_once_a_second(changes: dict[str, Any], waits: bool) -> None:
    old = {**WRITTEN, "conditions": [a_condition("RoundRunning", "2 of 4 workers train")]}
    new = {**old, **changes}
    due = DETAILS_WRITE_SECONDS if waits else 0.25
    assert write_status_at(old, new, old, NOW, NOW + 0.25, NOW) == NOW + due
    assert write_status_at(old, new, old, NOW, NOW + 5, NOW) == NOW + 5, "it has waited for long enough"
    assert write_status_at(old, new, None, 0.0, NOW, NOW) == NOW, "the first write"


@pytest.mark.parametrize(
    ("reporting_jobs", "seconds"),
    [(0, 5.0), (1, 5.0), (50, 5.0), (51, 5.1), (1000, 100.0)],
)
def test_jobs_write_progress_less_often_the_more_there_are(reporting_jobs: int, seconds: float) -> None:
    assert progress_write_seconds(reporting_jobs) == seconds


@pytest.mark.parametrize("jobs", [1, 50, 1000])
def test_progress_of_all_jobs_is_written_evenly(jobs: int) -> None:
    interval, writes = progress_write_seconds(jobs), []
    for number in range(jobs):
        first = next_progress_write(f"uid-{number}", NOW, jobs)
        assert NOW < first <= NOW + interval
        assert next_progress_write(f"uid-{number}", first, jobs) == pytest.approx(first + interval)
        assert next_progress_write(f"uid-{number}", first - 0.01, jobs) == pytest.approx(first)
        writes.append(first)
    for second in range(int(interval)):
        assert sum(NOW + second < at <= NOW + second + 1 for at in writes) <= 2.5 * PROGRESS_WRITES_PER_SECOND
