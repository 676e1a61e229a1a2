"""A trace is replayed to jobs of a small cluster, whose nodes come back; and the jobs."""

import asyncio
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_local.faults.watcher import background
from measure.api import ApiError
from measure.cluster import ClusterDriver
from measure.recorded_job import scripts
from replay import player, restart_all, traces
from replay.account import account
from replay.jobs import JOBS, SCRIPTS, SIZE, arguments, manifest
from replay.player import NOTICE, Player
from replay.restart_all import pod, service
from replay.run import Run
from replay.traces import EVENT_SECONDS, TRACES, compression, draw

from tests.job_schema import VALIDATOR

NODES = ["n1", "n2", "n3"]
STEP_SECONDS = 0.02


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr("measure.cluster.LOOK_SECONDS", 0.01)
    monkeypatch.setattr(player, "NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(player, "QUIET_STEPS", 10)
    monkeypatch.setattr(restart_all, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(traces, "AWAY_SECONDS", (0.05, 0.1))


def a_pod(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    states = [{"name": "pytorch", "containerID": f"containerd://{name}"}]
    status = {"phase": "Running", "containerStatuses": states}
    return {"metadata": {"name": name, "labels": {}, **metadata}, "spec": {"nodeName": node}, "status": status}


class Cluster:
    """An API server, nodes and their workers, which train as soon as all are there. A node comes back when they train again."""

    def __init__(self, file: Path) -> None:
        self.commands: list[str] = []
        self.pods: dict[str, dict[str, Any]] = {}
        self._file, self._step, self._steps_since = file, 0, 0  # since the last group was formed

    async def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        path = path.partition("?")[0]
        last = path.rpartition("/")[2]
        if method == "GET" and "elasticpytorchjobs/" in path and not self.pods:
            raise ApiError(404, "it is gone")
        if method == "POST" and last == "elasticpytorchjobs":
            self.pods = {f"w{n}": a_pod(f"w{n}", node) for n, node in enumerate(NODES)}
        elif method == "POST" and last == "pods":
            name, labels = body["metadata"]["name"], body["metadata"]["labels"]
            free = [node for node in NODES if f"cordon {node}" not in self.commands]
            self.pods[name] = a_pod(name, free[len(self.pods) % len(free)], labels=labels)
        elif method == "POST" and last == "eviction":
            self._end(path.split("/")[-2])
        elif method == "DELETE" and path.split("/")[-2] == "pods":
            if last not in self.pods:
                raise ApiError(404, "it is gone")
            del self.pods[last]
        elif method == "DELETE":
            self.pods.clear()
        return {"items": list(self.pods.values()), "spec": {"clusterIP": "10.96.0.9"}}

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        del stdin
        self.commands.append(" ".join(arguments))
        while arguments[0] == "uncordon" and self._steps_since < 2:
            await asyncio.sleep(STEP_SECONDS)
        return ""

    async def docker(self, *arguments: str) -> str:
        self.commands.append(f"kill {arguments[-1]}")
        self._end(arguments[-1])
        return ""

    def _end(self, name: str) -> None:
        """Ends a worker, which an operator would replace."""
        self._steps_since = 0
        if self.pods[name]["metadata"]["labels"]:
            self.pods[name]["status"]["phase"] = "Failed"

    async def train(self) -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            workers = [name for name, pod in self.pods.items() if pod["status"]["phase"] == "Running"]
            if len(workers) != SIZE:
                continue
            what = "step" if self._steps_since else "began"
            self._step += what == "step"
            self._steps_since += 1
            with self._file.open("a") as file:
                for rank, worker in enumerate(workers):
                    line = {"what": what, "worker": worker, "RANK": rank, "WORLD_SIZE": SIZE, "step": self._step}
                    file.write(json.dumps(line | {"at": time.time()}) + "\n")


async def replayed(folder: Path, trace: str, job: str) -> tuple[Cluster, Run]:
    cluster: Any = Cluster(folder / f"{job}.jsonl")
    played = Player(ClusterDriver(cluster, cluster, "ns"), folder, NODES, lambda _: None)
    async with background(cluster.train()):
        return cluster, await played.play(TRACES[trace], JOBS[job], seed=1, seconds=0.5, commit="abc")


async def test_node_of_each_trace_goes_and_comes_back_and_the_training_goes_on(tmp_path: Path) -> None:
    wanted = {
        ("research", "library"): ["cordon", "kill"],
        ("research", "restart-all"): ["cordon", "kill"],
        ("spot", "library"): ["taint", "kill"],
        ("spot", "restart-all"): ["cordon"],
    }
    folders = {names: tmp_path / "-".join(names) for names in wanted}
    for folder in folders.values():
        folder.mkdir()
    found = await asyncio.gather(*(replayed(folder, *names) for names, folder in folders.items()))
    for (names, made), (cluster, run) in zip(wanted.items(), found, strict=True):
        assert run.error == "", names
        assert len(run.events) == 1, names
        assert (run.steps[-1].group, len(account(run, 600.0).costs)) == (2, 1), names
        assert [command.split()[0] for command in cluster.commands] == [*made, "uncordon", "taint"], names
        assert cluster.commands[-1] == f"taint node {cluster.commands[-2].split()[1]} {NOTICE}-", names
        assert not cluster.pods, "the job was removed"


def test_traces_of_a_seed_leave_time_to_recover_and_are_compressed_as_much_as_the_jobs() -> None:
    for trace in TRACES.values():
        for seed in range(20):
            events = draw(trace, seed, 105.0)
            assert events == draw(trace, seed, 105.0) != draw(trace, seed + 1, 105.0)
            times = [*(event.at for event in events), 105.0]
            assert all(later - earlier > 0.6 * EVENT_SECONDS for earlier, later in pairwise(times)), seed
        factor = compression(trace, 105.0)
        assert factor == pytest.approx(trace.interval_seconds * len(events) / 105.0)
        told = [dict(pairwise(arguments(job, factor))) for job in JOBS.values()]
        names = ("--set-up-seconds", "--checkpoint-every", "--step-seconds")
        [options] = {tuple(float(each[name]) for name in names) for each in told}
        assert (options[0], options[1] * options[2]) == pytest.approx((300 / factor, 1800 / factor), abs=0.1)


def test_jobs_are_valid_and_pods_without_the_operator_meet_at_the_first_one() -> None:
    made = [manifest(job, 100.0, "trace-1") for job in JOBS.values() if job.operated]
    assert not [(job["metadata"]["name"], str(e)) for job in made for e in VALIDATOR.iter_errors(job)]
    assert {job["spec"]["replicas"] for job in made} == {SIZE}
    alone = [pod(JOBS["restart-all"], 2, index, "10.96.0.9", 100.0, "trace-1") for index in range(SIZE)]
    variables = [{v["name"]: v.get("value") for v in each["spec"]["containers"][0]["env"]} for each in alone]
    assert [each["PET_RDZV_ENDPOINT"] for each in variables] == ["127.0.0.1:29400", *["10.96.0.9:29400"] * 2]
    selector = service(JOBS["restart-all"], 2)["spec"]["selector"]
    assert [selector.items() <= each["metadata"]["labels"].items() for each in alone] == [True, False, False]
    assert {"train.py", "events.py"} <= scripts(SCRIPTS)["data"].keys()
