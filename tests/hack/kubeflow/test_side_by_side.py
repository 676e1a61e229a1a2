"""Losses are made to jobs side by side; steps become pauses, and pauses a table."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from bench import trials
from bench.trials import Trial
from elastic_pytorch_local.faults.steps import Step
from elastic_pytorch_local.faults.watcher import background
from kubeflow import replay, stage
from kubeflow.jobs import JOBS, KINDS, PYTORCH_JOB, SIZE, manifest, victim
from kubeflow.replay import Share, share
from kubeflow.report import complaints, shares_table, table
from kubeflow.stage import KubeflowStage
from measure.api import ApiError
from measure.cluster import ELASTIC_PYTORCH_JOB, ClusterDriver
from measure.outcome import Outcome

from tests.job_schema import VALIDATOR

STEP_SECONDS = 0.005


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_pytorch_local.faults.watcher.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("measure.cluster.LOOK_SECONDS", 0.01)
    monkeypatch.setattr(stage, "QUIET_STEPS", 5)
    monkeypatch.setattr(stage, "RECOVERY_SECONDS", 30.0)
    monkeypatch.setattr(stage, "NOTICE_SECONDS", 0.05)
    monkeypatch.setattr(replay, "AWAY_SECONDS", 0.05)
    monkeypatch.setattr(replay, "EVENT_SECONDS", 0.3)
    monkeypatch.setattr(trials, "PHASE_SECONDS", 0.01)
    monkeypatch.setattr(trials, "LOG_SECONDS", 0.01)


class Cluster:
    """A job's API server and workers: each change makes a group, which repeats a step."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        self.commands: list[str] = []
        self.pods: dict[str, dict[str, Any]] = {}
        self._folder, self._job, self._step, self._wanted = folder, "", 0, SIZE

    async def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        path = path.partition("?")[0]
        last, kind = path.rpartition("/")[2], path.split("/")[-2]
        forced = " by force" if method == "DELETE" and body == {"gracePeriodSeconds": 0} else ""
        self.asked.append(f"{method} {last}{forced}")
        if method == "GET" and kind == "pytorchjobs" and last != self._job:
            raise ApiError(404, "it is gone")
        if method == "POST":
            self._job, self._step, self._wanted = body["metadata"]["name"], 0, SIZE
            self._fill()
        elif method == "PATCH":
            self._wanted = body["spec"]["replicas"]
            self._fill()
        elif method == "DELETE" and kind == "pods":
            if last not in self.pods:
                raise ApiError(404, "it is gone")
            del self.pods[last]
            if self._job:
                self._fill()
        elif method == "DELETE":
            self._job, self.pods = "", {}
        return {"items": list(self.pods.values())}

    async def kubectl(self, *arguments: str) -> str:
        self.commands.append(" ".join(arguments))
        return ""

    async def train(self) -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            if self._job and len(self.pods) == self._wanted:
                self._step += 1
                self._tell("step", step=self._step)

    def _fill(self) -> None:
        names = [f"{self._job}-{index}" for index in range(self._wanted)]
        self.pods = {name: a_pod(name, index) for index, name in enumerate(names)}
        self._step = max(0, self._step - 1)
        self._tell("began")

    def _tell(self, what: str, **more: Any) -> None:
        told = {"what": what, "at": time.time(), "WORLD_SIZE": len(self.pods), **more}
        lines = [
            json.dumps(told | {"worker": worker, "RANK": rank}) + "\n"
            for rank, worker in enumerate(self.pods)
        ]
        with (self._folder / f"{self._job}.jsonl").open("a") as file:
            file.writelines(lines)


def a_pod(name: str, index: int) -> dict[str, Any]:
    labels = {"training.kubeflow.org/replica-index": str(index)}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": f"n{index}"},
        "status": {"phase": "Running"},
    }


async def test_kinds_take_turns_and_each_trial_has_its_figures(tmp_path: Path) -> None:
    cluster: Any = Cluster(tmp_path)
    made, kinds = list[Trial](), ["worker-force", "first-delete", "grow"]
    seen = KubeflowStage(
        ClusterDriver(cluster, cluster, "ns", PYTORCH_JOB), tmp_path, JOBS["pytorchjob"]
    )
    ordered = [(KINDS[kind], turn) for turn in range(2) for kind in kinds]
    async with background(cluster.train()):
        await trials.run(seen, "pytorchjob", ordered, made.append, lambda _: None)
        await seen.remove()
    assert not cluster.pods
    assert [trial.kind for trial in made] == kinds * 2
    assert [trial.cost.repeated if trial.cost else trial.error for trial in made] == [1] * 6
    whats = [
        "kubectl delete pod pytorchjob-1-1 --grace-period=0 --force",
        "kubectl delete pod pytorchjob-1-0",
    ]
    assert [trial.what for trial in made][:2] == whats
    assert {"DELETE pytorchjob-1-1 by force", "DELETE pytorchjob-1-0", "PATCH scale"} <= set(
        cluster.asked
    )


async def test_nodes_of_a_replay_go_with_or_without_notice_and_come_back(tmp_path: Path) -> None:
    notice = f"taint node n1 {stage.NOTICE}"
    back = {
        node: [f"uncordon {node}", f"taint node {node} {stage.NOTICE}-"] for node in ("n0", "n1")
    }
    for name, evicted in (("pytorchjob", ["DELETE pytorchjob-1-1"]), ("library", [])):
        cluster: Any = Cluster(tmp_path)
        kind = PYTORCH_JOB if JOBS[name].kubeflow else ELASTIC_PYTORCH_JOB
        seen = KubeflowStage(ClusterDriver(cluster, cluster, "ns", kind), tmp_path, JOBS[name])
        async with background(cluster.train()):
            found = await replay.replay(
                seen, [KINDS["first-force"], KINDS["worker-delete"]], lambda _: None
            )
        assert cluster.commands == [
            "cordon n0",
            *back["n0"],
            f"{notice}=:NoSchedule --overwrite",
            *back["n1"],
        ], name
        deleted = [each for each in cluster.asked if each.startswith("DELETE")]
        assert deleted == [
            f"DELETE {name}-1-0 by force",
            *evicted,
            f"DELETE {name}-1-1 by force",
        ], name
        assert len(found.costs) == 2, name


def test_share_counts_the_steps_that_are_kept_at_the_full_size() -> None:
    def steps(
        since: float, first: int, count: int, world: int = SIZE, group: int = 1
    ) -> list[Step]:
        return [Step(since + n * SIZE / world, "w", first + n, world, group) for n in range(count)]

    whole = steps(0.0, 1, 11)
    rows: dict[str, tuple[list[Step], float]] = {
        "nothing is lost": ([*whole, *steps(11.0, 12, 30)], 0.0),
        "it stands still for a time": ([*whole, *steps(16.0, 12, 25, group=2)], 5.0),
        "steps are done again": ([*whole, *steps(11.0, 6, 30, group=2)], 6.0),
        "a smaller group is slower": (
            [*whole, *steps(12.0, 12, 7, 2, 2), *steps(22.0, 19, 19, group=3)],
            4.0,
        ),
        "it never trains again": (whole, 30.0),
    }
    found = {name: share(made, [10.0, 40.0]) for name, (made, _) in rows.items()}
    assert {name: each.costs for name, each in found.items()} == {
        name: [cost] for name, (_, cost) in rows.items()
    }
    assert found["it never trains again"].ratio == 0.0
    with pytest.raises(ValueError, match="full size"):
        share(steps(0.0, 1, 5, world=2), [1.0, 2.0])


def test_jobs_are_valid_and_their_pods_and_sizes_alike() -> None:
    made = {name: manifest(job, "j-1", "folder") for name, job in JOBS.items()}
    ours = made["plain"]["spec"]
    pods = []
    for name, job in made.items():
        if JOBS[name].kubeflow:
            policy = job["spec"]["elasticPolicy"]
            workers = job["spec"]["pytorchReplicaSpecs"]["Worker"]
            bounds = (policy["minReplicas"], workers["replicas"], policy["maxReplicas"])
            assert bounds == (ours["minReplicas"], ours["replicas"], ours["maxReplicas"])
            pods.append(workers["template"]["spec"])
        else:
            VALIDATOR.validate(job)
            pods.append(job["spec"]["template"]["spec"])
    for part in ("terminationGracePeriodSeconds", "securityContext", "volumes"):
        assert all(pod[part] == pods[0][part] for pod in pods), part
    for part in ("image", "resources", "securityContext", "volumeMounts"):
        assert all(pod["containers"][0][part] == pods[0]["containers"][0][part] for pod in pods), (
            part
        )


def test_pod_to_lose_is_the_first_or_neither_first_nor_rank_0() -> None:
    pods = [a_pod(f"w{index}", index) for index in (2, 1, 0)]
    rows = {
        ("first-force", "pytorchjob", "w2"): "w0",  # where the others meet, whatever its rank
        ("first-delete", "plain", "w2"): "w2",
        ("worker-force", "pytorchjob", "w1"): "w2",
        ("worker-delete", "library", "w0"): "w1",
    }
    assert {row: victim(KINDS[row[0]], JOBS[row[1]], pods, row[2]) for row in rows} == rows


def test_table_of_shares_has_three_columns() -> None:
    shown = shares_table({"plain": Share(0.912, [1.0, 2.0, 9.5])}, {"commit": "abc"})
    assert shown.splitlines()[2:] == [
        "| ElasticPyTorchJob, plain script | 91.2% | 2.00 (9.50) |",
        "",
        "Measured with commit abc.",
    ]


def test_table_of_kept_results_has_medians_with_the_worst_in_brackets_and_names_failures() -> None:
    def trial(job: str, pause: float, repeated: int = 0, kind: str = "worker-force") -> Trial:
        return Trial(job, kind, "w1", Outcome(pause, pause, pause, pause + 2, repeated))

    failed = Trial("pytorchjob", "first-force", "w0", error="Waited: waited 120 s for it")
    made = [trial("pytorchjob", *seen) for seen in ((8.04, 3), (12.26, 20), (7.9, 5))] + [
        trial("plain", 0.31)
    ]
    made += [trial("plain", 0.29), trial("plain", 0.5, 0, "first-force"), failed]
    force, first = "| a worker is deleted by force", "| worker 0, or rank 0, is deleted by force"
    ours, theirs = "ElasticPyTorchJob, plain script", "PyTorchJob, tuned, plain script"
    assert table(made, {"training-operator": "v1.9.3"}).splitlines()[2:] == [
        f"{force} | {ours} | 0.30 (0.31) | 0.30 (0.31) | 2.30 (2.31) | 0 (0) | 2 of 2 |",
        f"{force} | {theirs} | 8.0 (12.3) | 8.0 (12.3) | 10.0 (14.3) | 5 (20) | 3 of 3 |",
        f"{first} | {ours} | 0.50 (0.50) | 0.50 (0.50) | 2.50 (2.50) | 0 (0) | 1 of 1 |",
        f"{first} | {theirs} | - | - | - | - | 0 of 1 |",
        "",
        "Measured with training-operator v1.9.3.",
    ]
    assert complaints(made) == ["pytorchjob, first-force: Waited: waited 120 s for it"]
