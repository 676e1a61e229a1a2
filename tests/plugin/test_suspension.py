import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from elastic_pytorch_client.errors import NotAllowed, Refused

from tests.plugin.plugin_console import FakeTime
from tests.plugin.recorded_cluster import RecordedCluster, recorded

Epj = Callable[..., tuple[int, str]]


def a_job(*conditions: str, **spec: Any) -> dict[str, Any]:
    job = recorded("young")["job"]
    job["spec"] |= spec
    job["status"] |= {
        "observedGeneration": 100,
        "conditions": [{"type": type_, "status": "True"} for type_ in conditions],
    }
    return job


def suspensions(cluster: RecordedCluster) -> list[bool]:
    return [json.loads(call[2])["spec"]["suspend"] for call in cluster.calls if call[0] == "patch"]


def test_restart_suspends_waits_and_resumes(epj: Epj) -> None:
    cluster = RecordedCluster("young")
    cluster.script = [a_job("Running", suspend=True), a_job("Suspended", suspend=True)]
    code, printed = epj(cluster, "restart", "char-lm")
    assert (code, suspensions(cluster), cluster.script) == (0, [True, False], [])
    assert printed.splitlines() == [
        "char-lm: its workers save and stop",
        "char-lm: its workers start again",
    ]


def test_restart_with_wait_waits_until_all_train(epj: Epj) -> None:
    cluster = RecordedCluster("young")
    cluster.script = [a_job("Suspended", suspend=True), "BREAK", a_job(), a_job("Running")]
    code, printed = epj(cluster, "restart", "char-lm", "--wait")
    assert (code, cluster.script) == (0, [])
    assert "workers train in round" in printed


@pytest.mark.parametrize("state", ["Complete", "Failed"])
def test_restart_of_a_job_that_has_ended_is_refused_with_the_way_out(
    state: str, epj: Epj, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = RecordedCluster("young")
    ended = a_job(state)
    ended["status"]["state"] = state
    cluster.put(ended)
    assert epj(cluster, "restart", "char-lm")[0] == 1
    said = capsys.readouterr().err
    assert f"char-lm has ended ({state}), and stays so: to run it again" in said
    assert "kubectl delete epj char-lm" in said
    assert not cluster.calls


def test_restart_of_a_suspended_job_is_refused(
    epj: Epj, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = RecordedCluster("young")
    cluster.put(a_job("Suspended", suspend=True))
    assert epj(cluster, "restart", "char-lm")[0] == 1
    assert "kubectl epj resume char-lm" in capsys.readouterr().err
    assert not cluster.calls


def test_restart_that_is_given_up_leaves_no_job_suspended(epj: Epj, fake_time: FakeTime) -> None:
    cluster = RecordedCluster("young")
    assert epj(cluster, "restart", "char-lm", "--timeout", "3")[0] == 1
    assert suspensions(cluster) == [True, False]

    def interrupt() -> None:
        raise KeyboardInterrupt

    cluster, fake_time.on_sleep = RecordedCluster("young"), interrupt
    assert epj(cluster, "restart", "char-lm")[0] == 130
    assert suspensions(cluster) == [True, False]


class NoResumption(RecordedCluster):
    """Lets jobs be suspended only."""

    def patch_job(self, namespace: str, name: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        if not patch["spec"]["suspend"]:
            raise Refused("no quota")
        return super().patch_job(namespace, name, patch)


def test_restart_that_cannot_resume_says_that_the_job_is_suspended(
    epj: Epj, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = NoResumption("young")
    cluster.script = [a_job("Suspended", suspend=True)]
    assert epj(cluster, "restart", "char-lm")[0] == 1
    assert (
        "no quota; char-lm stays suspended: `kubectl epj resume char-lm`" in capsys.readouterr().err
    )


def test_restart_without_the_right_to_suspend_changes_nothing(
    epj: Epj, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = RecordedCluster("young")
    cluster.faults = {"patch_job": [NotAllowed("you may not")]}
    assert epj(cluster, "restart", "char-lm")[0] == 1
    assert capsys.readouterr().err == "error: you may not\n"


def test_a_wait_may_have_no_end(epj: Epj) -> None:
    cluster = RecordedCluster("young")
    cluster.put(a_job())
    cluster.script = [a_job("Running")]
    code, printed = epj(cluster, "resume", "char-lm", "--wait", "--timeout", "inf")
    assert (code, cluster.script) == (0, [])
    assert "workers train in round" in printed
