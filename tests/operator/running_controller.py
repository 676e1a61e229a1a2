"""Controllers on a cluster in memory, and words for what a test waits for."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.agents.heartbeat import parse_heartbeat
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.api.resources import JOBS, PODS
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.reconcile.controller import Controller
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.reconcile.write_slots import WriteSlots
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import a_manifest
from tests.operator.faulty_cluster import FaultyCluster

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
Memory = TypeVar("Memory", bound=FakeCluster)


def running_status(address: str = "10.0.0.1") -> dict[str, Any]:
    containers = [{"name": "pytorch", "state": {"running": {}}}]
    return {"phase": "Running", "podIP": address, "containerStatuses": containers}


def succeeded_status() -> dict[str, Any]:
    ended = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    return {"phase": "Succeeded", "containerStatuses": [{"name": "pytorch", "state": ended}]}


class CountedQueue(WorkQueue[JobKey]):
    """Counts how often each key was taken out."""

    def __init__(self) -> None:
        super().__init__(clock=asyncio.get_running_loop().time)
        self.taken: Counter[JobKey] = Counter()

    async def get(self) -> JobKey:
        key = await super().get()
        self.taken[key] += 1
        return key


class RunningController(Generic[Memory]):
    """A controller, and all that it works on.

    Args:
        cluster: whose changes it watches.
        queue: of the jobs to plan; None: one of its own.
        kueue: whether it talks to Kueue.
        began: the time of day at second 0 of the event loop.

    Attributes:
        watching: whether it hears of changes.
    """

    def __init__(
        self,
        cluster: Memory,
        queue: WorkQueue[JobKey] | None = None,
        *,
        kueue: bool = False,
        began: datetime = BEGIN,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        clock = self.loop.time
        self.cluster = cluster
        self.cache = Cache()
        self.registry = AgentRegistry()
        self.slots = WriteSlots(clock)
        self.queue: WorkQueue[JobKey] = WorkQueue(clock=clock) if queue is None else queue
        self.metrics = Metrics()
        self.controller = Controller(
            cluster,
            self.cache,
            self.registry,
            self.queue,
            AgentSettings("http://operator"),
            clock,
            metrics=self.metrics,
            slots=self.slots,
            time_of_day=lambda: began + timedelta(seconds=clock()),
            kueue=kueue,
        )
        self.watching = True
        cluster.watch(self._watch)

    def _watch(self, kind: str, change: str | None, found: dict[str, object]) -> None:
        if self.watching:
            self.queue.add_all(self.cache.observe_change(kind, change, found, self.loop.time()))

    async def begin_to_watch(self) -> None:
        """Has it hear of changes from now on, after all that there is, as kopf's watches begin."""
        self.watching = True
        for kind, found in (
            (names.KIND, await self.cluster.list_all(JOBS)),
            ("Pod", await self.cluster.list_all(PODS)),
        ):
            for manifest in found:
                self._watch(kind, None, manifest)

    @asynccontextmanager
    async def runs(self) -> AsyncIterator["asyncio.Task[None]"]:
        """Has the controller list the cluster and work; yields its task."""
        await self.controller.prime()
        working = asyncio.create_task(self.controller.run())
        yield working
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    async def until(self, fulfilled: Callable[[], bool], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not fulfilled():
                await asyncio.sleep(0.01)

    def round_of(self, job: str) -> Round | None:
        """The newest round that was declared to a job."""
        return self.registry.job(self.cluster.job(job)["metadata"]["uid"]).round

    def hear(self, pod: str, uid: str, beat: Mapping[str, Any]) -> None:
        """Has an agent report, and its job be planned when that is due.

        That of a pod that is not known is not heard.
        """
        job = self.cache.worker("default", pod, uid)
        if job is None:
            return
        delay_seconds = self.registry.note_heartbeat(
            job[1], parse_heartbeat(pod, {"incarnation": uid, **beat}, self.loop.time())
        )
        if delay_seconds is not None:
            self.queue.add(job[0], delay_seconds)


class Running(RunningController[FaultyCluster]):
    """A controller for one job, whose API server may fail."""

    def __init__(self) -> None:
        super().__init__(FaultyCluster(), began=datetime.now(UTC))

    async def begin(self) -> None:
        """Has the job, with its three pods, begun."""
        self.cluster.apply_job(a_manifest())
        await self.until(lambda: len(self.indices()) == 3 and bool(self.condition("Running")))
        await self.write_status({"round": 1})

    def start_pods(self) -> None:
        """Has the pods run, and their agents speak once: they are ready."""
        for pod in self.cluster.pods():
            self.hear(
                pod["metadata"]["name"], pod["metadata"]["uid"], {"state": "ready", "round": 0}
            )
            self.cluster.set_pod_status("default", pod["metadata"]["name"], running_status())

    def lose_pod(self, number: int = 0) -> None:
        """Has the pod of that place in the list be gone."""
        name = self.cluster.pods()[number]["metadata"]["name"]
        self.cluster.finish_deletion("default", name)

    async def write_status(self, status: Mapping[str, Any]) -> None:
        version = self.cluster.job("lm")["metadata"]["resourceVersion"]
        await self.cluster.patch(JOBS, "default", "lm", version, {"status": status}, "status")

    def members(self) -> tuple[str, ...]:
        declared = self.round_of("lm")
        return declared.workers if declared else ()

    def round_size(self) -> int:
        return len(self.members())

    def events(self, reason: str) -> list[str]:
        return [event["note"] for event in self.cluster.events if event["reason"] == reason]

    async def until_pods(self, count: int) -> None:
        await self.until(lambda: len(self.indices()) == count)

    def condition(self, type_: str) -> str:
        found = find_condition(self.cluster.job("lm").get("status", {}), type_)
        return f"{found['reason']}: {found['message']}" if found else ""

    def indices(self) -> list[str]:
        return sorted(
            pod["metadata"]["labels"][names.LABEL_WORKER_INDEX] for pod in self.cluster.pods()
        )
