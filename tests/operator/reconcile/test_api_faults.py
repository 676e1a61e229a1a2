"""Random sequences: any request fails, answers are late, watches lag, lists are old.

Time is a number; the controller is the real one.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.agents.heartbeat import parse_heartbeat
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import NODES, PODS, Resource
from elastic_pytorch_operator.cluster.interface import Change, ClusterError
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.reconcile.controller import Controller
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.reconcile.write_slots import WriteSlots
from elastic_pytorch_operator.spec.job import JobKey

from tests.hypothesis_examples import seeds
from tests.operator.builders import KEY, a_manifest

pytestmark = pytest.mark.simulation

STEP_SECONDS = 0.1
FAULTY_SECONDS, CALM_SECONDS = 90.0, 90.0
MAX_CALLS_PER_SECOND = 40  # of the operator, for one job whose pods die again and again
FAULTS = [
    (0, "no answer from the API server: TimeoutError"),
    (400, 'admission webhook "p.example.com" denied the request: no'),
    (403, 'pods "lm" is forbidden: exceeded quota: team'),
    (
        409,
        "the object has been modified; please apply your changes to the latest version and try "
        "again",
    ),
    (
        422,
        "pods \"lm\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied "
        "request: no",
    ),
    (429, "too many requests"),
    (500, 'Internal error occurred: failed calling webhook "p.example.com": service "p" not found'),
    (503, "etcdserver: no leader"),
]
MALFORMED = (422, 'Pod "lm-worker-0" is invalid: spec.containers[0].image: Required value')


class Clock:
    """Simulated time, and who sleeps in it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            future = asyncio.get_running_loop().create_future()
            self._sleepers.append((self.now + seconds, future))
            await future

    def advance(self) -> None:
        self.now += STEP_SECONDS
        due = [future for at, future in self._sleepers if at <= self.now]
        self._sleepers = [(at, future) for at, future in self._sleepers if at > self.now]
        for future in due:
            if not future.cancelled():
                future.set_result(None)


class Agenda(WorkQueue[JobKey]):
    """A work queue in simulated time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.due: dict[JobKey, float] = {}

    def add(self, key: JobKey, delay_seconds: float = 0.0, *, urgent: bool | None = None) -> None:
        self.due[key] = min(
            self._clock() + max(0.0, delay_seconds), self.due.get(key, float("inf"))
        )


class FailingCluster(FakeCluster):
    """Fails at random, before or after it has done what was asked, and answers late."""

    def __init__(self, clock: Clock, chance: random.Random) -> None:
        self.clock, self.chance, self.faulty = clock, chance, False
        self.called_at: Counter[int] = Counter()
        super().__init__()

    async def list_all(self, resource: Resource, namespace: str = "") -> list[Manifest]:
        answer = super().list_all(resource, namespace)
        return await (answer if resource is NODES else self._through(answer))

    async def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        return await self._through(super().get(resource, namespace, name))

    async def create(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        created = super().create(resource, manifest, strict=strict, dry_run=dry_run)
        return await self._through(created, [MALFORMED] if resource is PODS else [])

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        version: str,
        change: Change,
        subresource: str = "",
    ) -> Manifest:
        return await self._through(
            super().patch(resource, namespace, name, version, change, subresource)
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str,
        *,
        grace_seconds: int | None = None,
    ) -> Manifest | None:
        return await self._through(
            super().delete(resource, namespace, name, uid, grace_seconds=grace_seconds)
        )

    async def _through(
        self, request: Coroutine[Any, Any, Any], more: list[tuple[int, str]] | None = None
    ) -> Any:
        self.called_at[int(self.clock())] += 1
        fails = self.faulty and self.chance.random() < 0.3
        begun = any(
            o["status"].get("round")
            for (kind, _, _), o in self._objects.items()
            if kind == names.KIND
        )
        error = ClusterError(
            *self.chance.choice(FAULTS + (more or [] if begun else [])), retry_after_seconds=0.0
        )
        if fails and (error.code or self.chance.random() < 0.5):
            request.close()
            raise error
        answer = await request
        if self.faulty:
            await self.clock.sleep(self.chance.choice((0.0, 0.0, 0.3, 1.5)))
        if fails:
            raise error  # it was done, and the answer was lost
        return answer

    def collect_garbage(self) -> None:
        """What was made for a job that had gone by then goes, too."""
        uids = {
            found["metadata"]["uid"]
            for (kind, _, _), found in self._objects.items()
            if kind == names.KIND
        }
        for (kind, namespace, name), found in list(self._objects.items()):
            owners = found["metadata"].get("ownerReferences") or ()
            if owners and not any(owner["uid"] in uids for owner in owners):
                self._remove(kind, namespace, name)


class World:
    """A job on such a cluster, with kubelets and agents that do their best."""

    def __init__(self, seed: int, backend: str) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.cluster = FailingCluster(self.clock, self.chance)
        self.cache, self.registry, self.agenda = Cache(), AgentRegistry(), Agenda(self.clock)
        self.manifest = a_manifest(
            rendezvous={"backend": backend},
            maximum=4,
            sharedVolumeClaims=[
                {"metadata": {"name": name}, "spec": {}} for name in ("checkpoints", "data")
            ],
            sharedVolumeClaimRetentionPolicy={"whenDeleted": "Delete"},
        )
        self.controller = Controller(
            self.cluster,
            self.cache,
            self.registry,
            self.agenda,
            AgentSettings("http://operator"),
            self.clock,
            slots=WriteSlots(self.clock, self.clock.sleep),
        )
        self._told: list[tuple[float, str, str, dict[str, Any]]] = []
        self._since: dict[str, float] = {}
        self._others: list[asyncio.Task[Any]] = []
        self.cluster.watch(self._watch)

    def _watch(self, kind: str, change: str, found: dict[str, Any]) -> None:
        last = self._told[-1][0] if self._told else 0.0
        lag = self.chance.choice((0.0, 0.1, 0.8)) if self.cluster.faulty else 0.0
        self._told.append((max(last, self.clock() + lag), kind, change, found))

    async def run(self, seconds: float, disturb: Callable[[], None] = lambda: None) -> None:
        until = self.clock() + seconds
        while self.clock() < until:
            self.clock.advance()
            disturb()
            self._run_kubelets()
            self.cluster.collect_garbage()
            self._speak()
            while self._told and self._told[0][0] <= self.clock():
                _, kind, change, found = self._told.pop(0)
                for key in self.cache.observe_change(kind, change, found, self.clock()):
                    self.agenda.add(key, 0.0)
            for _ in range(20):
                self._plan()
                await asyncio.sleep(0)

    def _plan(self) -> None:
        for key, due in list(self.agenda.due.items()):
            if due <= self.clock():
                del self.agenda.due[key]
                self.controller.reconcile(key)

    def relist(self) -> None:
        async def listing() -> None:
            with suppress(ClusterError):
                await self.controller.prime()

        self._others.append(asyncio.ensure_future(listing()))

    def _run_kubelets(self) -> None:
        for pod in self.cluster.pods():
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            since = self._since.setdefault(
                uid + str(pod["metadata"].get("deletionTimestamp")), self.clock()
            )
            if self.clock() - since < 1.0 or not pod["spec"].get("nodeName"):
                continue
            if pod["metadata"].get("deletionTimestamp"):
                self.cluster.finish_deletion("default", name)
            elif pod["status"]["phase"] == "Pending":
                running = {"name": "pytorch", "state": {"running": {}}}
                status = {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [running]}
                self.cluster.set_pod_status("default", name, status)

    def _speak(self) -> None:
        """Each agent says once a second what it does; those of stock jobs have none."""
        if (
            round(self.clock() * 10) % 10
            or self.manifest["spec"]["rendezvous"]["backend"] != names.BACKEND_OPERATOR
        ):
            return
        for pod in self.cluster.pods():
            name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
            found = self.cache.worker("default", name, uid)
            if pod["status"]["phase"] != "Running" or found is None:
                continue
            key, job_uid = found
            declared = self.registry.job(job_uid).round
            rank = declared.ranks.get(name) if declared else None
            beat: dict[str, Any] = {"incarnation": uid, "state": "ready", "round": 0}
            if declared is not None and rank is not None:
                beat |= {
                    "state": "running",
                    "round": declared.number,
                    "rank": rank,
                    "worldSize": declared.size,
                }
            if self.registry.note_heartbeat(job_uid, parse_heartbeat(name, beat, self.clock())):
                self.agenda.add(key)

    def disturb(self) -> None:
        """What happens to a job about once in two seconds."""
        if self.chance.random() > 0.05:
            return
        pods = self.cluster.pods()
        match self.chance.choice(("kill", "kill", "scale", "relist", "recreate")):
            case "kill" if pods:
                self.cluster.finish_deletion(
                    "default", self.chance.choice(pods)["metadata"]["name"]
                )
            case "scale":
                self.manifest["spec"]["replicas"] = self.chance.randint(1, 4)
                self.cluster.apply_job(self.manifest)
            case "relist":
                self.relist()
            case "recreate" if self.chance.random() < 0.2:
                self.cluster.remove_job("lm")
                self.cluster.apply_job(self.manifest)

    def alive(self, role: str) -> list[str]:
        return sorted(
            pod["metadata"]["labels"][names.LABEL_WORKER_INDEX]
            for pod in self.cluster.pods()
            if pod["metadata"]["labels"][names.LABEL_ROLE] == role
            and not pod["metadata"].get("deletionTimestamp")
        )


@pytest.mark.parametrize("backend", ["operator", "c10d"])
@seeds(30)
async def test_whatever_the_api_server_does_a_job_gets_its_pods_and_is_never_failed(
    seed: int, backend: str
) -> None:
    world = World(seed, backend)
    world.cluster.apply_job(world.manifest)
    await world.controller.prime()
    await world.run(10.0)
    assert len(world.alive(names.ROLE_WORKER)) == 3

    world.cluster.faulty = True
    await world.run(FAULTY_SECONDS, world.disturb)
    storm = max(world.cluster.called_at.values())
    assert storm <= MAX_CALLS_PER_SECOND, f"{storm} requests in a second"
    world.cluster.faulty = False
    await world.run(CALM_SECONDS)

    job = world.cluster.job("lm")
    conditions = {condition["type"]: condition for condition in job["status"]["conditions"]}
    assert conditions["Failed"]["status"] == "False", conditions["Failed"]["message"]
    wanted = world.manifest["spec"]["replicas"]
    alive = world.alive(names.ROLE_WORKER)
    assert len(alive) == len(set(alive)) == wanted, alive
    assert conditions["Running"]["message"] == f"{wanted} of {wanted} workers train"
    assert job["status"]["observedGeneration"] == job["metadata"]["generation"]
    assert {pod.name for pod in world.cache.pods.workers_of((KEY, job["metadata"]["uid"]))} >= {
        pod["metadata"]["name"]
        for pod in world.cluster.pods()
        if pod["metadata"]["labels"][names.LABEL_ROLE] == names.ROLE_WORKER
    }
    quiet = sum(world.cluster.called_at[int(world.clock()) - second] for second in range(20))
    assert quiet == 0, f"{quiet} requests although nothing happens"
    assert world.cache.has_job(KEY, job["metadata"]["uid"])
    assert find_condition(job["status"], "Running")
