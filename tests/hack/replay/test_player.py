"""A trace is replayed to a job of a small cluster, and each node comes back."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from measure.api import ApiError
from replay import player, restart_all, traces
from replay.account import account
from replay.jobs import JOBS, SIZE
from replay.player import NOTICE, Player
from replay.traces import TRACES

NODES = ["n1", "n2", "n3"]
STEP_SECONDS = 0.02


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(player, "NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(player, "QUIET_STEPS", 10)
    monkeypatch.setattr(restart_all, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(traces, "AWAY_SECONDS", (0.05, 0.1))


def a_pod(name: str, node: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    states = [{"name": "pytorch", "containerID": f"containerd://{name}"}]
    metadata = {"name": name, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running", "containerStatuses": states}}


class Cluster:
    """An API server, nodes and their workers, which train as soon as all are there. A node comes back when they train again."""

    def __init__(self, file: Path) -> None:
        self.commands: list[str] = []
        self.pods: dict[str, dict[str, Any]] = {}
        self._file, self._step, self._steps_since = file, 0, 0  # since the last group was formed

    async def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        path = path.partition("?")[0]
        last = path.rpartition("/")[2]
        if method == "POST" and last == "elasticpytorchjobs":
            self.pods = {pod["metadata"]["name"]: pod for pod in (a_pod(f"w{n}", node) for n, node in enumerate(NODES))}
        elif method == "POST" and last == "pods":
            name, labels = body["metadata"]["name"], body["metadata"]["labels"]
            free = [node for node in NODES if f"cordon {node}" not in self.commands]
            self.pods[name] = a_pod(name, free[len(self.pods) % len(free)], labels)
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

    def _end(self, pod: str) -> None:
        """Ends a worker, which an operator would replace."""
        self._steps_since = 0
        if self.pods[pod]["metadata"]["labels"]:
            self.pods[pod]["status"]["phase"] = "Failed"

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


@pytest.mark.parametrize(
    ("trace", "job", "made"),
    [
        ("research", "library", ["cordon", "kill"]),
        ("research", "restart-all", ["cordon", "kill"]),
        ("spot", "library", ["taint", "kill"]),
        ("spot", "restart-all", ["cordon"]),
    ],
)
async def test_a_node_goes_and_comes_back(tmp_path: Path, trace: str, job: str, made: list[str]) -> None:
    cluster: Any = Cluster(tmp_path / f"{job}.jsonl")
    training = asyncio.create_task(cluster.train())
    replayed = Player(cluster, cluster, tmp_path, NODES, lambda _: None)
    run = await replayed.play(TRACES[trace], JOBS[job], seed=1, seconds=0.5, commit="abc")
    training.cancel()
    assert run.error == ""
    assert [event.kind for event in run.events] == [TRACES[trace].kind]
    assert run.steps[-1].group == 2, "the training went on in another group"
    assert len(account(run, 600.0).costs) == 1
    assert [command.split()[0] for command in cluster.commands] == [*made, "uncordon", "taint"]
    node = cluster.commands[-2].split()[1]
    assert cluster.commands[-1] == f"taint node {node} {NOTICE}-"
    assert not cluster.pods, "the job was removed"


async def test_job_that_does_not_train_is_told_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "START_SECONDS", 0.05)
    cluster: Any = Cluster(tmp_path / "plain.jsonl")
    run = await Player(cluster, cluster, tmp_path, NODES, lambda _: None).play(
        TRACES["spot"], JOBS["plain"], seed=1, seconds=1.0, commit="abc"
    )
    assert run.error == "RuntimeError: plain did not train with 3 workers in 0 s"
    assert not cluster.pods
