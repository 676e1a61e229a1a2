"""Jobs in a queue: the real controller, Kueue's stand-in, kubelets and agents, in virtual time."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest

from tests.operator.builders import a_manifest
from tests.operator.kueue_stand_in import KueueCluster
from tests.operator.running_controller import RunningController, running_status, succeeded_status

TICK_SECONDS = 0.25
START_SECONDS = 2.0
STOP_SECONDS = 1.0  # from a pod's deletion to its end


class QueueWorld(RunningController[KueueCluster]):
    """An operator, a queue, and the jobs in it.

    Args:
        quota: in pods.
        supported: whether the operator asks Kueue for quota.
        before: the world whose operator this one takes over from.

    Attributes:
        rounds: what was declared to each job, by name: reasons and sizes.
        steps: how far each job's training has come, by name.
        overuse: moments at which more pods were there than had quota.
    """

    def __init__(
        self, quota: int = 6, *, supported: bool = True, before: "QueueWorld | None" = None
    ) -> None:
        cluster = before.cluster if before else KueueCluster(quota, nodes=4, pods_per_node=100)
        super().__init__(cluster, kueue=supported)
        self.quota = quota
        self.rounds: dict[str, list[tuple[str, int]]] = {}
        self.steps: dict[str, int] = {}
        self.overuse: list[str] = []
        self._ended: set[str] = set()
        self._addresses = itertools.count(1)
        self._born: dict[str, float] = {}  # pods, by UID
        self._dying: dict[str, float] = {}
        self._seen: dict[str, int] = {}  # the newest round of each job, by UID
        # What each agent has last said, by UID of its pod.
        self._beats: dict[str, dict[str, Any]] = {}
        if before is not None:
            before.watching = False
            self.steps = before.steps
            self._ended = before._ended
            self._addresses = before._addresses
            self._born, self._dying, self._beats = before._born, before._dying, before._beats

    def submit(
        self, name: str, minimum: int | None, replicas: int, *, priority: str = "", **spec: Any
    ) -> None:
        manifest = a_manifest(
            name, replicas=replicas, minimum=minimum, maximum=replicas if minimum else None, **spec
        )
        manifest["metadata"]["labels"] = {kueue.LABEL_QUEUE: "team"}
        if priority:
            manifest["metadata"]["labels"][kueue.LABEL_PRIORITY_CLASS] = priority
        self.cluster.apply_job(manifest)

    def change(self, name: str, **spec: Any) -> None:
        """Changes fields of a job's spec."""
        job = self.cluster.job(name)
        self.cluster.apply_job({**job, "spec": {**job["spec"], **spec}})

    def relabel(self, name: str, queue: str | None) -> None:
        labels = dict(self.cluster.job(name)["metadata"].get("labels") or {})
        labels.pop(kueue.LABEL_QUEUE, None)
        if queue is not None:
            labels[kueue.LABEL_QUEUE] = queue
        self.cluster.label_job(name, labels)

    def succeed(self, name: str) -> None:
        """Has the workers of a job end with success."""
        self._ended.add(name)

    def size(self, name: str) -> int:
        return self.rounds.get(name, [("", 0)])[-1][1]

    def pods(self, name: str) -> list[MutableManifest]:
        found = [
            pod
            for pod in self.cluster.pods()
            if pod["metadata"]["labels"][names.LABEL_JOB_NAME] == name
        ]
        return [pod for pod in found if pod["status"].get("phase") not in ("Succeeded", "Failed")]

    def condition(self, name: str, type_: str) -> tuple[str, str, str]:
        found = find_condition(self.cluster.job(name)["status"], type_)
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    def events(self, name: str, reason: str) -> list[str]:
        mine = (event for event in self.cluster.events if event["regarding"]["name"] == name)
        return [event["note"] for event in mine if event["reason"] == reason]

    async def until(self, fulfilled: Callable[[], bool], seconds: float = 120.0) -> None:
        async with asyncio.timeout(seconds):
            while not fulfilled():
                await asyncio.sleep(TICK_SECONDS)

    async def live(self) -> None:
        """Kueue, kubelets and agents, until cancelled."""
        while True:
            self.cluster.schedule_workloads()
            for pod in self.cluster.pods():
                self._live(pod)
            self._note_rounds()
            await asyncio.sleep(TICK_SECONDS)

    def _note_rounds(self) -> None:
        for key in self.cache.keys:
            declared = self.round_of(key.name)
            if declared is None or declared.number == self._seen.get(key.name):
                continue
            self._seen[key.name] = declared.number
            self.rounds.setdefault(key.name, []).append((declared.reason, declared.size))
        queued = [
            pod
            for pod in self.cluster.pods()
            if kueue.LABEL_LOCAL_QUEUE in pod["metadata"]["labels"]
        ]
        there = sum(pod["status"].get("phase") not in ("Succeeded", "Failed") for pod in queued)
        if there > self.cluster.used:
            self.overuse.append(
                f"{self.loop.time():.2f}: {there} pods, quota for {self.cluster.used}"
            )

    def _live(self, pod: Manifest) -> None:
        name, uid, now = pod["metadata"]["name"], pod["metadata"]["uid"], self.loop.time()
        job = pod["metadata"]["labels"][names.LABEL_JOB_NAME]
        born = self._born.setdefault(uid, now)
        if pod["metadata"].get("deletionTimestamp"):
            if now - self._dying.setdefault(uid, now) >= STOP_SECONDS:
                self.cluster.finish_deletion("default", name)
        elif pod["status"].get("phase") == "Pending" and pod["spec"].get("nodeName"):
            self.cluster.set_pod_status(
                "default", name, running_status(f"10.0.0.{next(self._addresses)}")
            )
        elif pod["status"].get("phase") == "Running" and now - born >= START_SECONDS:
            self._speak(job, name, uid)

    def _speak(self, job: str, pod: str, uid: str) -> None:
        if self.cache.worker("default", pod, uid) is None:
            return
        declared = self.round_of(job)
        beat: dict[str, Any] = {"state": "ready", "round": 0}
        if declared is None:  # to an operator that has just begun to lead
            beat = self._beats.get(uid, beat)
        elif pod in declared.ranks:
            if declared.ranks[pod] == 0:
                self.steps[job] = self.steps.get(job, 0) + 1
            done = job in self._ended
            beat = {
                "state": "succeeded" if done else "running",
                "round": declared.number,
                "rank": declared.ranks[pod],
                "worldSize": declared.size,
                "progress": {"step": self.steps.get(job, 0), "firstStep": 0},
            }
            if done:
                self.cluster.set_pod_status("default", pod, succeeded_status())
        self._beats[uid] = beat
        self.hear(pod, uid, beat)


@asynccontextmanager
async def playing(world: QueueWorld) -> AsyncIterator[QueueWorld]:
    """A world that goes on meanwhile. At no moment may more pods be there than have quota."""
    async with world.runs() as working:
        living = asyncio.create_task(world.live())
        yield world
        for task in (working, living):
            assert not task.done(), task
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
    assert world.overuse == [], world.overuse
    assert world.cluster.most_used <= world.quota
