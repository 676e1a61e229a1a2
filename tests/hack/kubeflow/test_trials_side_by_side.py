"""Trials are made to a job of a small cluster, whose workers train on with others after a loss."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from kubeflow import stage, trials
from kubeflow.jobs import JOBS, SIZE, Job
from kubeflow.losses import KINDS
from kubeflow.results import Trial
from kubeflow.stage import Stage
from kubeflow.trials import HOPELESS, Course
from measure.api import ApiError
from measure.watcher import background

STEP_SECONDS = 0.005


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(stage, "QUIET_STEPS", 5)
    monkeypatch.setattr(stage, "RECOVERY_SECONDS", 30.0)
    monkeypatch.setattr(trials, "PHASE_SECONDS", 0.01)


class Cluster:
    """An API server and the workers of one job: each change makes a group of those that are there, with a step to repeat."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        self.pods: dict[str, dict[str, Any]] = {}
        self.restarts = 0  # that a loss of the first pod costs
        self.trains = True
        self._folder, self._job, self._step, self._wanted = folder, "", 0, SIZE

    async def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        path = path.partition("?")[0]
        last, kind = path.rpartition("/")[2], path.split("/")[-2]
        self.asked.append(
            f"{method} {last} {body['gracePeriodSeconds']}" if method == "DELETE" and body else f"{method} {last}"
        )
        if method == "POST":
            self._job, self._step, self._wanted = body["metadata"]["name"], 0, SIZE
            self._fill(restarts=0)
        elif method == "PATCH":
            self._wanted = body["spec"]["replicas"]
            self.pods = {name: pod for name, pod in self.pods.items() if int(name.rpartition("-")[2]) < self._wanted}
            self._fill(restarts=0)
        elif method == "DELETE" and kind == "pods":
            if last not in self.pods:
                raise ApiError(404, "it is gone")
            del self.pods[last]
            if self._job:
                self._fill(restarts=self.restarts if last.endswith("-0") else 0)
        elif method == "DELETE":
            self._job = ""
        return {"items": list(self.pods.values())}

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return f"told by {arguments[0]}"

    async def train(self) -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            if self._job and self.trains and len(self.pods) == self._wanted:
                self._step += 1
                self._tell("step", step=self._step)

    def _fill(self, restarts: int) -> None:
        for index in range(self._wanted):
            name = f"{self._job}-{index}"
            labels = {"training.kubeflow.org/replica-index": str(index)}
            before = self.pods.get(name, {"status": {"containerStatuses": [{"restartCount": 0}]}})
            count = before["status"]["containerStatuses"][0]["restartCount"] + restarts
            status = {"phase": "Running", "containerStatuses": [{"restartCount": count}]}
            self.pods[name] = {"metadata": {"name": name, "labels": labels}, "status": status}
        if self.trains:
            self._step = max(0, self._step - 1)
            self._tell("began")

    def _tell(self, what: str, **more: Any) -> None:
        lines = []
        for rank, worker in enumerate(self.pods):
            line = {"what": what, "at": time.time(), "worker": worker, "RANK": rank, "WORLD_SIZE": len(self.pods)}
            lines.append(json.dumps(line | more) + "\n")
        with (self._folder / f"{self._job}.jsonl").open("a") as file:
            file.writelines(lines)


class Bench:
    """A course of trials, and what it has told."""

    def __init__(self, folder: Path, job: Job, kinds: list[str], *, turns: int = 2, seconds: float = 60.0) -> None:
        self.cluster, self.made, self.logs = Cluster(folder), list[Trial](), dict[str, str]()
        self.stage = Stage(self.cluster, self.cluster, folder, job)  # type: ignore[arg-type]
        end = time.monotonic() + seconds
        named = [KINDS[name] for name in kinds]
        self.course = Course(named, turns, end, self.made.append, self.logs.__setitem__, lambda _: None)

    async def run(self) -> int:
        async with background(self.cluster.train()):
            left_out: int = await self.course.run(self.stage)
        return left_out

    def objects(self) -> list[str]:
        return [asked for asked in self.cluster.asked if asked.startswith("POST")]


async def test_kinds_take_turns_and_each_has_its_figures(tmp_path: Path) -> None:
    bench = Bench(tmp_path, JOBS["pytorchjob"], ["worker-force", "first-delete", "grow"])
    assert await bench.run() == 0
    assert [trial.kind for trial in bench.made] == ["worker-force", "first-delete", "grow"] * 2
    assert not [trial.error for trial in bench.made if trial.error]
    assert [trial.figures.repeated for trial in bench.made if trial.figures] == [1] * 6
    assert [trial.pod for trial in bench.made][:3] == ["pytorchjob-1-1", "pytorchjob-1-0", ""]
    assert "DELETE pytorchjob-1-1 0" in bench.cluster.asked
    assert "DELETE pytorchjob-1-0" in bench.cluster.asked
    assert not bench.cluster.pods
    assert not bench.logs


async def test_job_with_restarted_containers_is_made_again_under_another_name(tmp_path: Path) -> None:
    bench = Bench(tmp_path, JOBS["pytorchjob"], ["first-force", "worker-force"])
    bench.cluster.restarts = 1
    assert await bench.run() == 0
    assert [trial.pod for trial in bench.made] == ["pytorchjob-1-0", "pytorchjob-2-1", "pytorchjob-2-0", "pytorchjob-3-1"]
    assert len(bench.objects()) == 3


async def test_trials_that_fail_say_why_and_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "START_SECONDS", 0.05)
    bench = Bench(tmp_path, JOBS["plain"], ["worker-force"], turns=HOPELESS + 2)
    bench.cluster.trains = False
    assert await bench.run() == 2
    assert len(bench.made) == HOPELESS == len(bench.objects())
    why = "Waited: waited 0 s for 3 workers of plain-1 to train; there was no step; plain-1-0: Running, plain-1-1: Running"
    assert bench.made[0].error.startswith(why)
    assert bench.logs["plain-worker-force-1"].startswith("told by describe")
    assert not bench.cluster.pods


async def test_no_trial_begins_after_the_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path, JOBS["library"], ["worker-force", "first-force"], seconds=-1.0)
    assert await bench.run() == 4
    assert not bench.made
    assert not bench.objects()
