"""A controller that runs on a cluster in memory, with words for what a test waits for."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from elastic_pytorch_operator.agents.heartbeat import parse_heartbeat
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.informer.cache import Cache

from tests.operator.builders import a_manifest
from tests.operator.faulty_cluster import FaultyCluster


@dataclass
class Running:
    cluster: FaultyCluster
    registry: AgentRegistry
    cache: Cache

    async def begin(self) -> None:
        """Has the job, with its three pods, begun."""
        self.cluster.apply_job(a_manifest())
        await self.until(lambda: len(self.indices()) == 3 and bool(self.condition("Running")))
        version = self.cluster.job("lm")["metadata"]["resourceVersion"]
        await self.cluster.patch_job_status("default", "lm", {"round": 1}, version)

    def start_pods(self) -> None:
        """Has the pods run, and their agents speak once: they are ready."""
        running = {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "containerStatuses": [{"name": "pytorch", "state": {"running": {}}}],
        }
        for pod in self.cluster.pods():
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            job = self.cache.worker("default", name, uid)
            assert job is not None
            beat = parse_heartbeat({"incarnation": uid, "state": "ready", "round": 0})
            self.registry.note_heartbeat(job[1], name, beat, asyncio.get_running_loop().time())
            self.cluster.set_pod_status("default", name, running)

    def members(self) -> tuple[str, ...]:
        """The workers of the newest round."""
        job_uid = self.cluster.job("lm")["metadata"]["uid"]
        declared = self.registry.job(job_uid).round
        return declared.workers if declared else ()

    def round_size(self) -> int:
        return len(self.members())

    def events(self, reason: str) -> list[str]:
        return [event["note"] for event in self.cluster.events if event["reason"] == reason]

    async def until(self, fulfilled: Callable[[], bool], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not fulfilled():
                await asyncio.sleep(0.01)

    def condition(self, type_: str) -> str:
        found = find_condition(self.cluster.job("lm").get("status", {}), type_)
        return f"{found['reason']}: {found['message']}" if found else ""

    def indices(self) -> list[str]:
        return sorted(pod["metadata"]["labels"][names.LABEL_WORKER_INDEX] for pod in self.cluster.pods())
