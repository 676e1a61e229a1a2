"""A webhook that hangs for the pods of some namespaces, and what their neighbors notice of it."""

import asyncio
from collections.abc import Mapping

import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import JOBS, PODS, Resource
from elastic_pytorch_operator.cluster.interface import ClusterError

from tests.operator.builders import a_manifest
from tests.operator.running_controller import RunningController
from tests.situations import situations

pytestmark = pytest.mark.simulation

HANG_SECONDS, ANSWER_SECONDS = 30.0, 0.03
TOO_SLOW = (
    'Internal error occurred: failed calling webhook "images.example.com": '
    "failed to call webhook: Post "
    '"https://policy.images.svc:443/verify?timeout=30s": context deadline exceeded'
)


class SlowAdmission(FakeCluster):
    """Answers a creation after a moment; some namespaces and jobs meet a slow webhook."""

    def __init__(self) -> None:
        super().__init__(nodes=4, pods_per_node=100)
        self.error = ClusterError(500, TOO_SLOW)
        self.overloads = 0  # creations yet to be answered by a request to wait

    async def create(
        self, resource: Resource, manifest: Manifest, *, strict: bool = False, dry_run: bool = False
    ) -> Manifest:
        if resource is not PODS:
            return await super().create(resource, manifest, strict=strict, dry_run=dry_run)
        if manifest["metadata"]["labels"][names.LABEL_JOB_NAME].startswith("hangs"):
            await asyncio.sleep(HANG_SECONDS)
            raise self.error
        await asyncio.sleep(ANSWER_SECONDS)
        if self.overloads:
            self.overloads -= 1
            raise ClusterError(429, "too many requests")
        return await super().create(resource, manifest, strict=strict, dry_run=dry_run)


class World(RunningController[SlowAdmission]):
    def apply(self, name: str, namespace: str) -> None:
        self.cluster.apply_job(a_manifest(name, namespace=namespace))

    async def begin(self, name: str, namespace: str) -> None:
        """Has a job of three workers begun."""
        self.apply(name, namespace)
        await self.pods_are(3, namespace)
        version = self.cluster.job(name, namespace)["metadata"]["resourceVersion"]
        await self.cluster.patch(JOBS, namespace, name, version, {"status": {"round": 1}}, "status")

    async def pods_are(self, count: int, namespace: str) -> None:
        async with asyncio.timeout(60):
            while len(self.cluster.pods(namespace)) != count:
                await asyncio.sleep(0.01)

    async def replacement_seconds(self, namespace: str) -> float:
        """For how long a lost pod's replacement waits to be made."""
        self.cluster.finish_deletion(namespace, self.cluster.pods(namespace)[0]["metadata"]["name"])
        began = self.loop.time()
        await self.pods_are(3, namespace)
        return self.loop.time() - began

    def condition(self, name: str, namespace: str, type_: str) -> Mapping[str, str]:
        return find_condition(self.cluster.job(name, namespace)["status"], type_)


@pytest.mark.parametrize(
    "error",
    [ClusterError(500, TOO_SLOW), ClusterError(0, "no answer from the API server: TimeoutError")],
)
@situations(
    "namespaces, jobs, overloads, quiet_seconds, most_seconds",
    {
        "one": (1, 1, 0, 7.0, 0.5),
        "more of a namespace than there are slots": (1, 40, 0, 7.0, 0.5),
        "of two namespaces, and nothing else is answered": (2, 40, 0, 2 * HANG_SECONDS, 0.5),
        "of five": (5, 4, 0, 2 * HANG_SECONDS, 0.5),
        "of twenty": (20, 2, 0, 7.0, 0.5),
        "and the API server asks to wait": (1, 40, 3, 7.0, 5.0),
    },
)
async def test_neighbors_replacement_does_not_wait_for_a_webhook_that_hangs(
    namespaces: int,
    jobs: int,
    overloads: int,
    quiet_seconds: float,
    most_seconds: float,
    error: ClusterError,
) -> None:
    world = World(SlowAdmission())
    world.cluster.error = error
    async with world.runs():
        await world.begin("lm", "default")
        for number in range(namespaces * jobs):
            world.apply(f"hangs-{number}", f"team-{number % namespaces}")
        waits = []
        for _ in range(4):
            await asyncio.sleep(quiet_seconds)
            world.cluster.overloads = overloads
            waits.append(await world.replacement_seconds("default"))
        assert max(waits) < most_seconds


@pytest.mark.parametrize("jobs", [1, 20])
async def test_user_learns_which_webhook_hangs_and_other_jobs_of_the_namespace_go_on(
    jobs: int,
) -> None:
    world = World(SlowAdmission())
    async with world.runs():
        await world.begin("lm", "team")
        for number in range(jobs):
            world.apply(f"hangs-{number}", "team")
        await asyncio.sleep(2 * HANG_SECONDS)
        for number in range(jobs):
            running = world.condition(f"hangs-{number}", "team", names.RUNNING)
            assert 'failed calling webhook "images.example.com"' in running["message"]
        waits = []
        for _ in range(20):
            waits.append(await world.replacement_seconds("team"))
            await asyncio.sleep(7)
        assert max(waits) < HANG_SECONDS
        assert sorted(waits)[10] < 1.0
