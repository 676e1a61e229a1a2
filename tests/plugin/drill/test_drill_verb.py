"""`kubectl epj drill`, on a job that reacts to it."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from elastic_pytorch_client.errors import NotAllowed, Refused
from elastic_pytorch_client.reading.job_view import view_job

from tests.plugin.drill.drilled_cluster import DrilledCluster, a_training_job
from tests.plugin.plugin_console import FakeTime

Epj = Callable[..., tuple[int, str]]


def test_dry_run_changes_nothing(epj: Epj) -> None:
    cluster = DrilledCluster()
    code, text = epj(cluster, "drill", "lm")
    assert (code, cluster.calls) == (0, [])
    assert "kill -9 a training process in pod lm-worker-2-a" in text
    assert "2 to 4 allowed" in text
    assert "Nothing was done. To do it: kubectl epj drill -n team lm --yes" in text


def test_all_faults_are_done_and_undone(epj: Epj) -> None:
    cluster = DrilledCluster()
    code, text = epj(cluster, "drill", "lm", "--yes", width=200)
    assert code == 0, text
    assert [call[:2] for call in cluster.calls] == [
        ("exec", "lm-worker-2-a"),
        ("delete pod", "lm-worker-2-a"),
        ("cordon", "node-1"),
        ("evict", "lm-worker-1-a"),
        ("uncordon", "node-1"),
        ("scale", "lm"),
        ("scale", "lm"),
        ("patch", "lm"),
    ]
    assert cluster.calls[0][2:] == ("pytorch", "python3", "-c")
    assert [call[2] for call in cluster.calls[-3:-1]] == ["4", "3"]
    assert not cluster.cordoned
    assert "init (1.0 s)" in text
    assert "3 -> 2" in text
    assert "It was disturbed 4 times, and trained again each time." in text


def test_pods_that_an_earlier_fault_has_replaced_are_not_targets_of_a_later_one(epj: Epj) -> None:
    cluster = DrilledCluster(2, a_training_job(2, minimum=1))
    code, text = epj(cluster, "drill", "lm", "--yes", width=200)
    assert code == 0, text
    gone = [call[1] for call in cluster.calls if call[0] in ("delete pod", "evict")]
    assert len(set(gone)) == len(gone)


def test_json(epj: Epj) -> None:
    cluster = DrilledCluster()
    cluster.phases["stop"] = "20.30"
    code, text = epj(cluster, "drill", "lm", "--yes", "--only", "process", "-o", "json")
    found = json.loads(text)
    assert (code, found["recovered"], found["dryRun"]) == (0, True, False)
    (fault,) = found["faults"]
    (interruption,) = fault["interruptions"]
    assert (fault["fault"], interruption["slowestPhase"], interruption["phaseSeconds"]["stop"]) == ("process", "stop", 20.3)
    assert "SIGTERM handler" in fault["advice"][0]
    assert "It is 20 now" in fault["advice"][0]
    code, text = epj(cluster, "drill", "lm", "-o", "json")
    assert (code, json.loads(text)["dryRun"]) == (0, True)


def test_the_job_keeps_what_its_last_drill_has_shown(epj: Epj) -> None:
    cluster = DrilledCluster()
    assert epj(cluster, "drill", "lm", "--yes", "--only", "process")[0] == 0
    drill = view_job(cluster.get_job("team", "lm")).last_drill
    assert drill is not None
    assert drill.recovered
    assert [(fault.fault, fault.error) for fault in drill.faults] == [("process", "")]
    assert (drill.faults[0].interruptions[0].slowest, drill.faults[0].interruptions[0].before) == ("init", 3)


def test_a_job_that_may_not_be_edited_keeps_nothing_and_the_drill_is_as_good(epj: Epj) -> None:
    cluster = DrilledCluster()
    cluster.faults = {"patch_job": [NotAllowed("elasticpytorchjobs is forbidden")] * 2}
    code, text = epj(cluster, "drill", "lm", "--yes", "--only", "process", width=200)
    assert code == 0
    assert "The page of kubectl epj ui will not show this drill: elasticpytorchjobs is forbidden" in text
    code, text = epj(cluster, "drill", "lm", "--yes", "--only", "process", "-o", "json")
    assert (code, json.loads(text)["recovered"]) == (0, True)


@pytest.mark.parametrize("fault", ["pod", "node", "scale"])
def test_ends_at_the_first_fault_without_interruption_and_undoes_it(fault: str, epj: Epj) -> None:
    cluster = DrilledCluster()
    cluster.recovers = False
    code, text = epj(cluster, "drill", "lm", "--yes", "--only", fault, "--timeout", "20")
    assert code == 1
    assert f"NOT RECOVERED from {fault}: lm did not train again within 20 s" in text
    assert not cluster.cordoned
    assert cluster.get_job("team", "lm")["spec"]["replicas"] == 3


def test_interrupted_drill_undoes_what_it_has_changed(epj: Epj) -> None:
    cluster = DrilledCluster()

    def interrupt() -> None:
        raise KeyboardInterrupt

    cluster.on_change = interrupt
    assert epj(cluster, "drill", "lm", "--yes", "--only", "node")[0] == 130
    assert cluster.calls[-1] == ("uncordon", "node-1")
    cluster = DrilledCluster()
    cluster.on_change = interrupt
    assert epj(cluster, "drill", "lm", "--yes", "--only", "scale")[0] == 130
    assert cluster.get_job("team", "lm")["spec"]["replicas"] == 3


def test_size_that_was_set_meanwhile_stays(epj: Epj) -> None:
    cluster = DrilledCluster()

    def set_size() -> None:
        cluster.on_change = lambda: None
        job = cluster.get_job("team", "lm")
        job["spec"]["replicas"] = 2
        cluster.put(job)
        raise KeyboardInterrupt

    cluster.on_change = set_size
    assert epj(cluster, "drill", "lm", "--yes", "--only", "scale")[0] == 130
    assert cluster.get_job("team", "lm")["spec"]["replicas"] == 2


def test_undo_that_fails_says_what_to_do_by_hand(epj: Epj) -> None:
    cluster = DrilledCluster()

    def forbid() -> None:
        cluster.faults["cordon_node"] = [NotAllowed("nodes is forbidden")]

    cluster.on_change = forbid
    _, text = epj(cluster, "drill", "lm", "--yes", "--only", "node")
    assert "Do it by hand: kubectl uncordon node-1" in text.replace("\n", " ")


@pytest.mark.parametrize(
    ("verb", "fault"), [("delete_pod", "pod"), ("evict_pod", "node"), ("get_node", "node"), ("scale_job", "scale")]
)
def test_what_the_api_server_would_refuse_is_left_out(verb: str, fault: str, epj: Epj, fake_time: FakeTime) -> None:
    said = (
        'User "me" cannot do it' if verb != "evict_pod" else "Cannot evict pod as it would violate the pod's disruption budget."
    )
    cluster = DrilledCluster()
    cluster.faults[verb] = [Refused(said)]
    code, text = epj(cluster, "drill", "lm", width=200)
    assert code == 0
    assert f"left out: {said}" in text
    cluster.faults[verb] = [Refused(said)]
    assert epj(cluster, "drill", "lm", "--yes", "--only", fault)[0] == 1
    assert cluster.calls == []


def test_missing_right_to_run_commands_is_named(epj: Epj) -> None:
    cluster = DrilledCluster()
    cluster.forbidden = {("create", "pods/exec")}
    code, text = epj(cluster, "drill", "lm", width=200)
    assert code == 0
    assert "allow the verb create on pods/exec in namespace team" in text


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (a_training_job(suspend=True), "is suspended"),
        (a_training_job(rendezvous={"backend": "c10d"}), "stock torchrun"),
    ],
)
def test_refusal_is_an_error(job: dict[str, Any], words: str, epj: Epj, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = epj(DrilledCluster(3, job), "drill", "lm", "--yes")
    assert code == 1
    assert words in capsys.readouterr().err
