"""How the ends of pods, and what processes hold, are read."""

from typing import Any

import pytest

from tests.soak.observe import end_of, read_usage, restarts_of
from tests.soak.timeline import Restart, Usage


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


def test_usage_is_read_line_by_line_and_processes_that_have_ended_are_left_out() -> None:
    lines = "412@90 agent 31 3 9 51200\n413@91 agent 0 0  \n700@92 operator 55 0 12 102400\n"
    assert read_usage(5.0, "n1", lines) == [
        Usage(5.0, "n1/412@90", "agent", 31, 3, 9, 50.0),
        Usage(5.0, "n1/700@92", "operator", 55, 0, 12, 100.0),
    ]


def an_operator(restarts: int, **last: Any) -> dict[str, Any]:
    status = {"restartCount": restarts, "lastState": {"terminated": last} if last else {}}
    return {"metadata": {"name": "op"}, "spec": {"nodeName": "n1"}, "status": {"containerStatuses": [status]}}


def test_restarts_of_an_operator_count_since_it_was_first_seen() -> None:
    known = dict[str, int]()
    assert restarts_of(an_operator(3, exitCode=137), known, 1.0) == [], "it was so before the run"
    assert restarts_of({"metadata": {"name": "new"}, "spec": {}, "status": {}}, known, 2.0) == []
    seen = Restart(3.0, "op", "n1", "its container ended with 1 (Error)")
    assert restarts_of(an_operator(5, exitCode=1, reason="Error"), known, 3.0) == [seen, seen]
    assert restarts_of(an_operator(5, exitCode=1, reason="Error"), known, 4.0) == []
