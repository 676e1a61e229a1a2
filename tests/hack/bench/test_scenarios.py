"""Each kind of fault, made to a job that is only said to be there."""

import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from bench import trials
from bench.results import Result
from bench.scenarios import PLAIN, SCENARIOS
from bench.stage import Stage
from elastic_pytorch_client.reading.job_view import view_job
from measure.records import Declared, Init, Started, Step
from measure.timeline import Timeline
from measure.watcher import Watcher

from tests.paths import ROOT

JOB = ROOT / "examples" / "all-reduce" / "job.yaml"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
RUNNING = {"ready": True, "restartCount": 0, "containerID": "containerd://c-id", "state": {"running": {}}}


class Cluster:
    """Takes note of what is asked of it; nodes come back at once, and another operator leads when the leader is deleted."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.watcher = Watcher(self, "ns", "all-reduce")  # type: ignore[arg-type]
        self.watcher.pods = {name: a_pod(name, f"n{rank}") for rank, name in enumerate("abcd")}
        self.watcher.operators = {"o1": a_pod("o1", "n2"), "o2": a_pod("o2", "n9")}
        self.watcher.holder = "o1"
        self.resize(3)

    def resize(self, replicas: int) -> None:
        workers = [{"name": name, "rank": rank, "state": "Running"} for rank, name in enumerate("abcd"[:replicas])]
        self.watcher.job = view_job({"spec": {"replicas": replicas}, "status": {"workers": workers}})
        for worker in workers:
            self.watcher.timeline.add(Started(1.0, worker["name"], (18,)))

    async def kubectl(self, *arguments: str) -> str:
        self.done.append(f"kubectl {' '.join(arguments)}")
        return f"{time.time()}\n"

    async def docker(self, *arguments: str) -> str:
        self.done.append(f"docker {' '.join(arguments)}")
        return ""

    async def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        if method != "GET":
            self.done.append(f"{method} {path.partition('/ns/')[2] or path} {body or ''}".strip())
        if path.endswith("/scale"):
            self.resize(body["spec"]["replicas"])
        if method == "DELETE" and path.endswith("/o1"):
            self.watcher.operators = {"o2": a_pod("o2", "n9")}
            self.watcher.holder = "o2"
        now = datetime.fromtimestamp(time.time() + 60, UTC).isoformat()
        return {"spec": {"renewTime": now}, "status": READY, "items": []}


class WholeStage(Stage):
    """One whose job is always there and whole: it takes a step."""

    async def make(self, *, handler: bool) -> None:
        assert not handler

    async def whole(self, world: int) -> None:
        now = time.time()
        for record in (Declared(now, 2, ("a",), "WorkerLost", "b"), Init(now, "a", 0, world), Step(now, "a", 7, world)):
            self.watcher.timeline.add(record)


def a_pod(name: str, node: str) -> dict[str, Any]:
    status = {**READY, "containerStatuses": [RUNNING]}
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": status}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.scenarios.UNNOTICED_SECONDS", 0.0)
    monkeypatch.setattr("bench.trials.PHASE_SECONDS", 0.0)
    monkeypatch.setattr("bench.trials.LOG_SECONDS", 0.01)


@pytest.mark.parametrize(
    ("name", "text", "victims", "done"),
    [
        ("kill-process", "SIGKILL to rank 1's process", (), ["kubectl -n ns exec b -c pytorch -- python -c import os"]),
        ("kill-container", "SIGKILL to rank 1's container", ("b",), ["docker exec n1 ctr -n k8s.io task kill --all --signal SIGKILL c-id"]),
        ("lose-pod", "delete rank 2's pod, no grace", ("c",), ["DELETE pods/c {'gracePeriodSeconds': 0}"]),
        ("lose-rank-0", "delete rank 0's pod, no grace", ("a",), ["DELETE pods/a {'gracePeriodSeconds': 0}"]),
        ("drain", "kubectl drain of a node", ("c",), ["kubectl drain n2 --pod-selector=benchmark=trial", "kubectl uncordon n2"]),
        ("scale-up", "kubectl scale to 4", (), ["PATCH elasticpytorchjobs/all-reduce/scale"]),
        ("scale-down", "kubectl scale to 3", ("d",), ["PATCH elasticpytorchjobs/all-reduce/scale"]),
        ("lose-node", "docker kill of a node", ("b",), ["docker kill n1", "docker start n1"]),
        ("lose-node-leader", "docker kill of the leader's node", ("c",), ["docker kill n2", "docker start n2"]),
        ("cut-node", "node drops all packets", ("b",), ["docker exec n1 sh -ec iptables", "docker exec n1 sh -c while iptables"]),
        ("operator-restart", "delete the operator's pod, no grace", (), ["DELETE /api/v1/namespaces/elastic-pytorch-system/pods/o1"]),
    ],
)  # fmt: skip
async def test_each_fault_is_made_and_undone(name: str, text: str, victims: tuple[str, ...], done: list[str]) -> None:
    cluster: Any = Cluster()
    cluster.resize(PLAIN[name].replicas)
    stage = WholeStage(cluster, cluster, cluster.watcher, JOB)
    async with AsyncExitStack() as undo:
        fault = await PLAIN[name].inject(stage, 1, undo)
    assert (fault.text, fault.victims) == (text, victims)
    assert fault.wanted == (4 if name == "scale-up" else 3)
    assert len(cluster.done) == len(done)
    assert all(made.startswith(begin) for made, begin in zip(cluster.done, done, strict=True)), cluster.done


async def test_process_of_which_no_log_tells_fails_its_trial_and_not_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.scenarios.LOG_SECONDS", 0.01)
    cluster: Any = Cluster()
    cluster.watcher.timeline = Timeline()
    kept: list[Result] = []
    stage = WholeStage(cluster, cluster, cluster.watcher, JOB)
    await trials.run(stage, [(SCENARIOS["kill-process"], 0)], kept.append, lambda _: None)
    assert [result.error for result in kept] == ["Waited: waited 0 s for the log of a to tell its process"]


async def test_trials_are_made_kept_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.stage.TRIES", 1)
    cluster: Any = Cluster()
    # The only node with one worker other than rank 0 is the leader's.
    cluster.watcher.pods["c"] = a_pod("c", "n0")
    cluster.watcher.operators["o1"] = a_pod("o1", "n1")
    kept: list[Result] = []
    told: list[str] = []
    stage = WholeStage(cluster, cluster, cluster.watcher, JOB)
    await trials.run(stage, [(SCENARIOS["lose-pod"], 0), (SCENARIOS["lose-node"], 0)], kept.append, told.append)
    made, failed = kept
    assert (made.scenario, made.fault, made.error) == ("lose-pod", "delete rank 1's pod, no grace", "")
    assert made.figures is not None
    assert (made.figures.rounds, made.figures.steps_lost) == (1, 1)
    assert [text for _, text in made.rounds] == ["2 WorkerLost: b"]
    assert told[0].startswith("  lose-pod 1: trains again 0.0")
    assert (failed.figures, failed.fault) == (None, "")
    assert told[1] == (
        "  lose-node 1: FAILED: RuntimeError: no worker other than rank 0 is alone on a node (that the operator is not on)"
    )
