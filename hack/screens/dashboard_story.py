"""What the picture of the dashboard tells: two replicas of the operator, jobs, and what happens to them within three minutes.

The operator's replicas are real, and so is what agents and Prometheus ask them. The cluster is in memory, nobody trains: agents say
which steps a group would have come to.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from counted_cluster import connect
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.runtime.replica import Replica
from elastic_pytorch_operator.runtime.settings import ReplicaSettings
from elastic_pytorch_operator.spec.job import JobKey
from simulated_agents import SimulatedKubelets
from simulated_training import Training

SYSTEM = "elastic-pytorch-system"
REPLICAS = tuple(f"{names.OPERATOR}-{suffix}" for suffix in ("7c9f-4kx2p", "7c9f-9qzlw", "7c9f-tv8hd"))
NODES = 4
PODS_PER_NODE = 8
SECONDS = 170


@dataclass
class Operators:
    """The operator's replicas, and what stands for its Service."""

    cluster: FakeCluster
    ports: dict[str, tuple[int, int]] = field(default_factory=lambda: {name: (_free_port(), _free_port()) for name in REPLICAS})
    _stops: dict[str, asyncio.Event] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def start(self, name: str) -> None:
        """A replica's pod comes."""
        await self.cluster.create_pod({"metadata": {"namespace": SYSTEM, "name": name}, "spec": {"containers": []}})
        port, probe_port = self.ports[name]
        settings = ReplicaSettings("http://operator", "127.0.0.1", port, probe_port, SYSTEM, name)
        metrics, stop = Metrics(), asyncio.Event()
        replica = Replica(connect(self.cluster, metrics), settings, self._watch, metrics=metrics)
        self._stops[name], self._tasks[name] = stop, asyncio.create_task(replica.run(stop))

    async def stop(self, name: str) -> None:
        """A replica is told to end, and its pod goes."""
        self._stops[name].set()
        await self._tasks.pop(name)
        self.cluster.finish_deletion(SYSTEM, name)

    def find(self) -> str:
        """The URL behind the Service: of the pod that has the leader's label."""
        for pod in self.cluster.pods(SYSTEM):
            if (pod["metadata"].get("labels") or {}).get(names.LABEL_LEADER) == "true":
                return f"http://127.0.0.1:{self.ports[pod['metadata']['name']][0]}"
        return ""

    async def close(self) -> None:
        """Ends all."""
        for name in list(self._tasks):
            await self.stop(name)

    async def _watch(self, cache: Cache, request_work: Callable[[JobKey, float], None]) -> None:
        def take(kind: str, change: str, found: dict[str, Any]) -> None:
            for key in cache.observe_change(kind, change, found, time.monotonic()):
                request_work(key, 0.0)

        self.cluster.watch(take)
        await asyncio.Event().wait()


class Story:
    """What happens, and when it did.

    Attributes:
        marks: the moments, in seconds since 1970, and what happened then.
    """

    def __init__(self, cluster: FakeCluster, operators: Operators, kubelets: SimulatedKubelets) -> None:
        self._cluster = cluster
        self._operators = operators
        self._kubelets = kubelets
        self._began_at = time.monotonic()
        self.marks: list[tuple[float, str]] = []

    async def tell(self, session: aiohttp.ClientSession) -> None:
        """Lives through it."""
        cluster, kubelets = self._cluster, self._kubelets
        for name in REPLICAS[:2]:
            await self._operators.start(name)
        kubelets.trainings["digits"] = Training(total=900)
        kubelets.trainings["char-lm"] = Training(start_seconds=1.3)
        await self._at(6, "three jobs start")
        for name, size in (("char-lm", 4), ("vision", 3), ("digits", 2)):
            cluster.apply_job(a_job(name, size))
        await self._at(30, "a worker raises an exception")
        kubelets.of("char-lm")[1].fail("ValueError", "a batch with a NaN in it")
        await self._at(42, "a pod is killed")
        kubelets.kill(kubelets.of("vision")[-1].name)
        await self._at(54, "char-lm is scaled from 4 workers to 7")
        cluster.scale_job("char-lm", 7)
        await self._at(66, "a job comes whose code cannot start")
        kubelets.broken_code["typo"] = "ModuleNotFoundError: No module named 'trnasformers'"
        cluster.apply_job(a_job("typo", 2, failurePolicy={"maxFailures": 2}))
        await self._at(80, "a node dies")
        node = kubelets.of("char-lm")[2].pod["spec"]["nodeName"]
        kubelets.lose_node(node)
        await self._at(92, "")
        cluster.set_node_ready(node, False)
        await self._at(100, "the leader is replaced, as in a rollout")
        await self._operators.stop(REPLICAS[0])
        await self._operators.start(REPLICAS[2])
        await self._at(114, "a pod is evicted; the node is back")
        kubelets.return_node(node)
        cluster.set_node_ready(node, True)
        cluster.begin_deletion("default", kubelets.of("vision")[0].name)
        await self._at(124, "a worker runs out of memory")
        kubelets.of("char-lm")[0].fail("OutOfMemory", "killed by the kernel", exit_code=-9, signal="SIGKILL")
        await self._at(136, "char-lm is scaled to 3; forged tokens; an error of the API")
        cluster.scale_job("char-lm", 3)
        cluster.fail_next("patch_job_status", 503, "the API server is overloaded")
        for _ in range(5):
            async with session.get(f"{self._operators.find()}/v1/round", headers={"Authorization": "Bearer forged"}):
                await asyncio.sleep(0.2)
        await self._at(148, "vision is suspended")
        vision = cluster.job("vision")
        cluster.apply_job({**vision, "spec": {**vision["spec"], "suspend": True}})
        await self._at(SECONDS, "")

    async def _at(self, seconds: float, what: str) -> None:
        await asyncio.sleep(max(0.0, self._began_at + seconds - time.monotonic()))
        if what:
            self.marks.append((time.time(), what))


def a_job(name: str, size: int, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": names.TRAINING_CONTAINER, "image": "training:1", "args": ["train.py"]}]}}
    sizes = {"replicas": size, "minReplicas": 1, "maxReplicas": 8}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**sizes, "template": template, **spec},
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
