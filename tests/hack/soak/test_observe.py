"""How the ends of pods, and what processes hold, are read."""

import time
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_client.reading.job_view import view_job
from measure.records import seconds_of
from soak.observe import Observer, end_of, outlasts_grace_period, read_usage, restarts_of, status_of
from soak.timeline import Restart, StatusSeen, Usage


def a_pod(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    sidecar = {"name": "sidecar", "state": {"terminated": {"exitCode": 1}}}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [sidecar, {"name": "pytorch", "state": state, **more}]}}


@pytest.mark.parametrize(
    ("change", "pod", "how"),
    [
        ("MODIFIED", a_pod({"running": {}}), ""),
        ("DELETED", a_pod({"running": {}}), "deleted"),
        ("MODIFIED", a_pod({"terminated": {"exitCode": 137}}), "its container ended with 137"),
        ("MODIFIED", a_pod({"running": {}}, restartCount=1), "its container was started again"),
        ("MODIFIED", {"metadata": {"name": "p", "deletionTimestamp": "now"}, "status": {}}, "deleted"),
        ("ADDED", {"metadata": {"name": "p"}, "status": {}}, ""),
    ],
)
def test_ends(change: str, pod: dict[str, Any], how: str) -> None:
    assert end_of(change, pod) == how


@pytest.mark.parametrize(
    ("code", "deleting", "outlasts"), [(137, True, True), (137, False, False), (0, True, False), (143, True, False)]
)
def test_pods_that_outlast_their_grace_period(code: int, deleting: bool, outlasts: bool) -> None:
    pod = a_pod({"terminated": {"exitCode": code}})
    pod["metadata"] |= {"deletionTimestamp": "now"} if deleting else {}
    assert outlasts_grace_period(pod) is outlasts
    assert not outlasts_grace_period({"metadata": {"name": "p", "deletionTimestamp": "now"}, "status": {}})


def test_status_names_the_spares_that_are_ready_and_counts_failures() -> None:
    workers = [{"name": f"w{i}", "state": state} for i, state in enumerate(("Running", "Spare", "Preparing"))]
    status = {"state": "Running", "worldSize": 1, "totalFailures": 2, "workers": workers}
    job = view_job({"metadata": {"name": "job"}, "spec": {}, "status": status})
    assert status_of(job, 5.0) == StatusSeen(5.0, "job", "Running", 1, 2, frozenset({"w1"}))


def test_usage_is_read_line_by_line_and_processes_that_have_ended_are_left_out() -> None:
    lines = "412@90 agent 31 3 9 51200\n413@91 agent 0 0  \n700@92 operator 55 0 12 102400\n"
    assert read_usage(5.0, "n1", lines) == [
        Usage(5.0, "n1/412@90", "agent", 31, 3, 9, 50.0),
        Usage(5.0, "n1/700@92", "operator", 55, 0, 12, 100.0),
    ]


def an_operator(*, last: dict[str, Any] | None = None, now: dict[str, Any] | None = None, **metadata: str) -> dict[str, Any]:
    status = {"lastState": {"terminated": last} if last else {}, "state": {"terminated": now} if now else {"running": {}}}
    return {"metadata": {"name": "op", **metadata}, "spec": {"nodeName": "n1"}, "status": {"containerStatuses": [status]}}


def an_end(container: str, second: int, exit_code: int = 1) -> dict[str, Any]:
    at = f"2026-11-26T08:00:{second:02}Z"
    return {"containerID": container, "finishedAt": at, "exitCode": exit_code, "reason": "Error"}


def test_each_end_of_an_operators_container_counts_once() -> None:
    known, since = set[str](), seconds_of("2026-11-26T08:00:10Z")
    assert restarts_of(an_operator(last=an_end("a", 9)), known, since) == [], "before the run"
    assert restarts_of({"metadata": {"name": "new"}, "spec": {}, "status": {}}, known, since) == []
    seen = Restart(since + 2, "op", "n1", "its container ended with 1 (Error)")
    assert restarts_of(an_operator(now=an_end("b", 12), last=an_end("a", 9)), known, since) == [seen]
    assert restarts_of(an_operator(last=an_end("b", 12)), known, since) == [], "the same end"
    assert len(restarts_of(an_operator(now=an_end("d", 30), last=an_end("c", 20)), known, since)) == 2
    assert restarts_of(an_operator(now=an_end("e", 40, 0), deletionTimestamp="now"), known, since) == [], "its pod is deleted"


def test_it_is_quiet_since_the_newest_line_of_all_jobs(tmp_path: Path) -> None:
    observer = Observer(None, None, "ns", tmp_path, [])  # type: ignore[arg-type]
    now = time.time()
    observer.lines |= {"a": [{"at": now - 500}], "b": [{"at": now - 900}, {"at": now - 300}], "c": []}
    assert 300 <= observer.quiet_seconds() < 400
