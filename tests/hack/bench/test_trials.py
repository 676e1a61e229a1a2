"""Trials are made to a job that is only said to be there, in an order in which one undoes the other."""

import time
from typing import Any

import pytest
from bench import __main__ as program
from bench import trials
from bench.results import Result
from bench.scenarios import SCENARIOS
from bench.stage import Stage
from elastic_pytorch_client.reading.job_view import view_job
from measure.records import Declared, Init, Started, Step
from measure.timeline import Timeline
from measure.watcher import Watcher

from tests.paths import ROOT


class Cluster:
    """Has a job of three workers, two of them on one node, and takes note of what is asked of it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.watcher = Watcher(self, "ns", "all-reduce")  # type: ignore[arg-type]
        self.watcher.pods = {name: a_pod(name, node) for name, node in (("a", "n0"), ("b", "n1"), ("c", "n0"))}
        self.watcher.operators, self.watcher.holder = {"o1": a_pod("o1", "n1")}, "o1"
        workers = [{"name": name, "rank": rank, "state": "Running"} for rank, name in enumerate("abc")]
        self.watcher.job = view_job({"spec": {"replicas": 3}, "status": {"workers": workers}})
        for name in "abc":
            self.watcher.timeline.add(Started(1.0, name, (18,)))

    async def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        self.done.append(f"{method} {path.partition('/ns/')[2]} {body}")
        return {"items": []}


class WholeStage(Stage):
    """One whose job is always there and whole: it takes a step."""

    async def make(self, *, handler: bool) -> None:
        assert not handler

    async def whole(self, world: int) -> None:
        now = time.time()
        for record in (Declared(now, 2, ("a",), "WorkerLost", "b"), Init(now, "a", 0, world), Step(now, "a", 7, world)):
            self.watcher.timeline.add(record)


def a_pod(name: str, node: str) -> dict[str, Any]:
    running = {"ready": True, "restartCount": 0, "containerID": "containerd://c-id", "state": {"running": {}}}
    status = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [running]}
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": status}


async def test_trials_are_made_kept_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"stage.TRIES": 1, "scenarios.UNNOTICED_SECONDS": 0.0, "trials.PHASE_SECONDS": 0.0}.items():
        monkeypatch.setattr(f"bench.{name}", value)
    monkeypatch.setattr("bench.trials.LOG_SECONDS", 0.01)
    cluster: Any = Cluster()
    kept, told = list[Result](), list[str]()
    stage = WholeStage(cluster, cluster, cluster.watcher, ROOT / "examples" / "all-reduce" / "job.yaml")
    await trials.run(stage, [(SCENARIOS["lose-pod"], 0), (SCENARIOS["lose-node"], 0)], kept.append, told.append)
    made, failed = kept
    assert (made.scenario, made.fault, made.error) == ("lose-pod", "delete rank 1's pod, no grace", "")
    assert "DELETE pods/b {'gracePeriodSeconds': 0}" in cluster.done
    assert made.figures is not None
    assert (made.figures.rounds, made.figures.steps_lost) == (1, 1)
    assert [text for _, text in made.rounds] == ["2 WorkerLost: b"]
    assert told[0].startswith("  lose-pod 1: trains again 0.0")
    assert (failed.figures, failed.fault) == (None, "")
    why = "no worker other than rank 0 is alone on a node (that the operator is not on)"
    assert told[1] == f"  lose-node 1: FAILED: RuntimeError: {why}"


async def test_process_of_which_no_log_tells_fails_its_trial_and_not_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.scenarios.LOG_SECONDS", 0.01)
    cluster: Any = Cluster()
    cluster.watcher.timeline = Timeline()
    kept: list[Result] = []
    stage = WholeStage(cluster, cluster, cluster.watcher, ROOT / "examples" / "all-reduce" / "job.yaml")
    await trials.run(stage, [(SCENARIOS["kill-process"], 0)], kept.append, lambda _: None)
    assert [result.error for result in kept] == ["Waited: waited 0 s for the log of a to tell its process"]


def test_trials_are_in_an_order_in_which_one_undoes_the_other() -> None:
    only = program.parse_options(["--only", "scale-down,lose-pod-handler,lose-pod,scale-up"]).only
    ordered = [(scenario.name, turn) for scenario, turn in program.in_order(only, 2)]
    sizes = [(name, turn) for turn in (0, 1) for name in ("scale-up", "scale-down")]
    assert ordered == [
        *((name, turn) for name in ("lose-pod",) for turn in (0, 1)),
        *sizes,
        ("lose-pod-handler", 0),
        ("lose-pod-handler", 1),
    ]
    assert not [name for name in program.parse_options(["--library"]).only if name.endswith("-handler")]
