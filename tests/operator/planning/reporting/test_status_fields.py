"""The fields of a job's status besides its state, counts and conditions; and when the status is written."""

from typing import Any

import pytest
from elastic_pytorch_operator.planning.completion import Ending
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.reporting.interruption import Interruption
from elastic_pytorch_operator.planning.reporting.status import (
    DETAILS_WRITE_SECONDS,
    PROGRESS_WRITES_PER_SECOND,
    SAME_WRITE_SECONDS,
    needs_write,
    next_progress_write,
    progress_write_seconds,
    write_status_at,
)

from tests.operator.builders import NOW, TIME, a_dead_pod, a_pending_pod, a_pod, a_round, an_agent, observed
from tests.operator.planning.reporting.test_status import ALL, BOOM, NONE, SUSPENDED, status_of


@pytest.mark.parametrize(
    ("pod", "agent", "member", "worker"),
    [
        pytest.param(a_pod(0), an_agent("w0"), True, {"rank": 0, "node": "node-0", "state": "Running"}, id="trains"),
        pytest.param(
            a_pod(0), an_agent("w0", "failed"), True, {"rank": 0, "node": "node-0", "state": "Running"}, id="restarts"
        ),
        pytest.param(
            a_pod(0), an_agent("w0", "succeeded"), True, {"rank": 0, "node": "node-0", "state": "Succeeded"}, id="done"
        ),
        pytest.param(a_pod(0), an_agent("w0", "ready", 0), False, {"node": "node-0", "state": "Ready"}, id="ready"),
        pytest.param(a_pod(0), an_agent("w0", "leaving"), True, {"rank": 0, "node": "node-0", "state": "Leaving"}, id="leaves"),
        pytest.param(a_pending_pod(0), None, False, {"state": "Starting"}, id="has no node"),
        pytest.param(a_pod(0), None, False, {"node": "node-0", "state": "Starting"}, id="its agent has not spoken"),
        pytest.param(a_dead_pod(0), None, True, {"rank": 0, "node": "node-0", "state": "Lost"}, id="lost"),
        pytest.param(
            a_dead_pod(0, exit_code=0),
            an_agent("w0", "succeeded"),
            True,
            {"rank": 0, "node": "node-0", "state": "Succeeded"},
            id="has exited with 0",
        ),
        pytest.param(
            a_dead_pod(0, exit_code=0),
            an_agent("w0"),
            True,
            {"rank": 0, "node": "node-0", "state": "Lost"},
            id="has exited with 0, which its agent did not call success",
        ),
    ],
)
def test_worker(pod: Any, agent: Any, member: bool, worker: dict[str, Any]) -> None:
    seen = observed([pod], [agent] if agent else [], round=a_round(0) if member else None)
    assert status_of(seen)["workers"] == [{"name": "w0", "index": 0, **worker}]


def test_worker_that_an_operator_before_this_one_has_heard_is_silent() -> None:
    seen = observed([a_pod(0)], heard_before=frozenset({"w0"}), listening_since=NOW, last_heard_at=NOW)
    assert status_of(seen)["workers"][0]["state"] == "Silent"


def test_stock_torchrun_gives_the_ranks() -> None:
    assert "rank" not in status_of(ALL, {"rendezvous": {"backend": "c10d"}})["workers"][0]


def test_workers_are_in_the_order_of_their_indices_without_those_whose_pods_are_gone() -> None:
    seen = observed([a_pod(2), a_pod(0)], [an_agent("w2"), an_agent("w0")], round=a_round(0, 1, 2))
    assert [worker["name"] for worker in status_of(seen)["workers"]] == ["w0", "w2"]


LOST = {"cause": "WorkerLost", "seconds": "1.00", "round": 4, "time": TIME}
OLD = {
    "round": 4,
    "startTime": "2025-12-31T00:00:00Z",
    "progress": {"summary": "7", "step": 7},
    "recentInterruptions": [LOST],
    "interruptions": 2,
    "operatorState": {"lastGrowthTime": "2025-12-31T00:00:01Z"},
    "rootCause": {"worker": "w9"},
}


def test_what_is_known_from_before_stays() -> None:
    status = status_of(NONE, {"status": OLD})
    assert {name: status[name] for name in OLD} == OLD


@pytest.mark.parametrize(
    ("said", "field", "value"),
    [
        pytest.param({"grown": True}, "operatorState", {"lastGrowthTime": TIME}, id="the group grows"),
        pytest.param({"budget": Budget(group_restarts=2)}, "groupRestarts", 2, id="all workers are replaced"),
        pytest.param({"budget": Budget(failures=2, total=5)}, "failures", 2, id="failures since the last progress"),
        pytest.param({"budget": Budget(failures=2, total=5)}, "totalFailures", 5, id="failures since the job began"),
        pytest.param(
            {"interruption": Interruption(5, "WorkerFailed", NOW, seconds=1.234, steps_lost=3, time=TIME)},
            "recentInterruptions",
            [LOST, {"cause": "WorkerFailed", "seconds": "1.23", "stepsLost": 3, "round": 5, "time": TIME}],
            id="an interruption is over",
        ),
        pytest.param(
            {"interruption": Interruption(5, "WorkerFailed", NOW, seconds=1.234)}, "interruptions", 3, id="it is counted"
        ),
        pytest.param({"interruption": Interruption(5, "WorkerFailed", NOW)}, "interruptions", 2, id="it goes on"),
        pytest.param(
            {"interruption": Interruption(4, "WorkerLost", NOW, seconds=1.0, time=TIME)},
            "interruptions",
            2,
            id="it has been counted",
        ),
        pytest.param({"budget": Budget(last=BOOM)}, "rootCause", BOOM.as_status(), id="the last failure"),
        pytest.param({"ending": Ending(False, "R", "m")}, "completionTime", TIME, id="the end"),
        pytest.param({"ending": Ending(False, "R", "m", BOOM)}, "rootCause", BOOM.as_status(), id="the cause of the end"),
    ],
)
def test_field(said: dict[str, Any], field: str, value: object) -> None:
    assert status_of(ALL, {"status": OLD}, **said)[field] == value


def test_suspended_job_has_no_time_of_its_start() -> None:
    assert "startTime" not in status_of(NONE, {**SUSPENDED, "status": OLD})


WRITTEN = {"round": 1, "progress": {"step": 1}}


@pytest.mark.parametrize(
    ("new", "needed"),
    [
        pytest.param(WRITTEN, False, id="nothing new"),
        pytest.param({**WRITTEN, "progress": {"step": 2}}, False, id="progress may wait"),
        pytest.param({**WRITTEN, "stragglers": [{"rank": 1}]}, False, id="slow ranks may wait"),
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
