"""Trials with a job that does not exist, and how figures become tables and complaints."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from bench import __main__ as program
from bench import report, trials
from bench.scenarios import SCENARIOS
from bench.stage import BenchStage, read_job
from bench.trials import Trial
from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_local.faults.steps import Began, Started, Step
from elastic_pytorch_local.faults.watcher import Watcher
from measure.api import ApiError
from measure.cluster import ClusterDriver
from measure.outcome import Outcome

from tests.paths import ROOT

EXAMPLE = ROOT / "examples" / "all-reduce" / "job.yaml"
COST = Outcome(0.4, 0.45, 0.45, 3.0, 7, rounds=2)


class Cluster:
    """Takes note of what is asked of it, and has one operator, on n1, that leads."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        if method != "GET":
            self.done.append(f"{method} {path.partition('/ns/')[2]} {body}")
        elif "elasticpytorchjobs/" in path:
            raise ApiError(404, "there is none")
        return {
            "items": [a_pod("o1", "n1")] if "system" in path else [],
            "spec": {"holderIdentity": "o1"},
        }

    async def kubectl(self, *arguments: str) -> str:
        self.done.append(arguments[-1])
        return f"{time.time()}\n"


def a_pod(name: str, node: str) -> dict[str, Any]:
    running = {
        "name": "pytorch",
        "restartCount": 0,
        "containerID": "containerd://c-id",
        "state": {"running": {}},
    }
    status = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [running]}
    return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": status}


class WholeStage(BenchStage):
    async def whole(self, world: int) -> None:
        self.watcher.job = replace(self.watcher.job, round=self.watcher.job.round + 1)
        await asyncio.sleep(0.002)
        self.watcher.log.add(Began(time.time(), "a", world))
        await asyncio.sleep(0.002)
        self.watcher.log.add(Step(time.time(), "a", 7, world))


def a_stage(cluster: Any) -> WholeStage:
    driver = ClusterDriver(cluster, cluster, "ns")
    watcher = Watcher(driver, "all-reduce")
    watcher.pods = {
        name: a_pod(name, node) for name, node in (("a", "n0"), ("b", "n1"), ("c", "n0"))
    }
    workers = [{"name": name, "rank": rank, "state": "Running"} for rank, name in enumerate("abc")]
    watcher.job = view_job({"spec": {"replicas": 3}, "status": {"workers": workers, "round": 2}})
    watcher.log.add(Started(1.0, "a", (18,)))
    return WholeStage(driver, watcher, read_job(EXAMPLE))


async def test_trials_are_made_kept_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.stage.TRIES", 1)
    monkeypatch.setattr("bench.trials.report", lambda *_: "")
    monkeypatch.setattr("bench.trials.PHASE_SECONDS", 0.0)
    monkeypatch.setattr("bench.trials.LOG_SECONDS", 0.01)
    kept, told, cluster = list[Trial](), list[str](), Cluster()
    ordered = [
        (SCENARIOS[name], 0) for name in ("lose-pod", "kill-process", "scale-up", "lose-node")
    ]
    await trials.run(a_stage(cluster), "all-reduce", ordered, kept.append, told.append)
    assert [trial.error for trial in kept[:3]] == ["", "", ""]
    assert "DELETE pods/b {'gracePeriodSeconds': 0}" in cluster.done
    assert "import os, time; print(time.time(), flush=True); os.kill(18, 9)" in cluster.done
    assert [
        (trial.what, trial.cost.rounds, trial.cost.repeated) for trial in kept[:1] if trial.cost
    ] == [("kubectl delete pod b --grace-period=0 --force", 1, 1)]
    why = "no worker other than rank 0 is alone on a node (the leading operator there: False)"
    assert told[-1] == f"  lose-node 1: FAILED: RuntimeError: {why}"


def test_trials_are_in_an_order_in_which_one_undoes_the_other() -> None:
    only = program.parse_options(["--only", "scale-down,lose-pod,scale-up"]).only
    ordered = [(scenario.name, turn) for scenario, turn in program.in_order(only, 2)]
    sizes = [(name, turn) for turn in (0, 1) for name in ("scale-up", "scale-down")]
    assert ordered == [("lose-pod", 0), ("lose-pod", 1), *sizes]


def a_trial(kind: str = "lose-pod", error: str = "", **figures: Any) -> Trial:
    restarts = figures.pop("restarts", 0)
    cost = None if error else replace(COST, **figures)
    return Trial(kind, kind, "a fault", cost, restarts, error)


def test_what_is_not_as_promised_is_said_and_shown() -> None:
    said = {
        "": a_trial(),
        "lose-pod: the median is 1.30 s, the target is 1.2 s": a_trial(again=1.3),
        "lose-pod: rounds 3 instead of 2 in 1 of 1 trials": a_trial(rounds=3),
        "lose-pod: restarts 1 instead of 0 in 1 of 1 trials": a_trial(restarts=1),
        "lose-pod: failures 1 instead of 0 in 1 of 1 trials": a_trial(failures=1),
        "lose-pod: waited in vain": a_trial(error="waited in vain"),
        "cut-node: back at size after 9.50 s, the target is 9.0 s": a_trial("cut-node", whole=9.5),
    }
    assert {complaint: report.complaints([made]) for complaint, made in said.items()} == {
        it: [it] * bool(it) for it in said
    }
    made = [a_trial(name, again=again) for name in SCENARIOS for again in (0.4, 0.6, 0.5)] + [
        a_trial(error="waited in vain")
    ]
    shown = report.table(made).splitlines()[2:]
    assert [row.split(" | ")[0].strip("| ") for row in shown] == list(SCENARIOS)
    assert "| lose-pod | 0.50 (0.60) | 0.45 (0.45) | 3.00 (3.00) | 7 (7) | 3 of 4 |" in shown
