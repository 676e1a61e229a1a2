"""A failed write that waits for a slot causes no plan meanwhile, of whichever kind it is."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.resources import JOBS
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.planning.failed_writes import REFUSED_SECONDS

from tests.operator.builders import KEY, TIME, a_manifest
from tests.operator.kueue_stand_in import KueueCluster
from tests.operator.running_controller import CountedQueue, RunningController

PAUSE_SECONDS = 60.0
LOOK_SECONDS = 30.0  # of the pause, when the write may be tried again
MAX_PLANS = 20  # of a job in that time: by deadlines and what the watches tell
A_CLAIM = {"metadata": {"name": "data"}, "spec": {}}


class RefusingCluster(KueueCluster):
    """Refuses one verb."""

    def __init__(self, refused: str) -> None:
        super().__init__(quota=8)
        self.refused = refused

    def _called(self, verb: str) -> None:
        super()._called(verb)
        if verb == self.refused:
            raise ClusterError(403, "exceeded quota: team")


class Overload:
    """The one write of another job, by which the API server asks to wait."""

    namespace = "other"
    left = 1

    def has_write(self) -> bool:
        return self.left > 0

    def next_write(self) -> Coroutine[Any, Any, ClusterError]:
        self.left -= 1

        async def send() -> ClusterError:
            return ClusterError(429, "too many requests", retry_after_seconds=PAUSE_SECONDS)

        return send()


World = RunningController[RefusingCluster]


async def no_more(world: World) -> None:
    pass


async def scale_down(world: World) -> None:
    world.cluster.scale_job("lm", 1)


async def lose_all_pods(world: World) -> None:
    for pod in world.cluster.pods():
        world.cluster.finish_deletion("default", pod["metadata"]["name"])


async def end(world: World) -> None:
    status = {
        "conditions": [{"type": "Complete", "status": "True"}],
        "state": "Complete",
        "completionTime": TIME,
    }
    await world.cluster.patch(
        JOBS,
        "default",
        "lm",
        world.cluster.job("lm")["metadata"]["resourceVersion"],
        {"status": status},
        "status",
    )


@pytest.mark.parametrize(
    ("refused", "spec", "then"),
    [
        ("create Service", {}, no_more),
        ("create PersistentVolumeClaim", {"sharedVolumeClaims": [A_CLAIM]}, no_more),
        (
            "create PodGroup",
            {"minimum": 2, "scheduling": {"gangScheduler": "Coscheduling"}},
            no_more,
        ),
        ("try Pod", {"suspend": True}, no_more),
        ("try PersistentVolumeClaim", {"suspend": True, "sharedVolumeClaims": [A_CLAIM]}, no_more),
        ("patch ElasticPyTorchJob/status", {}, no_more),
        ("create Pod", {}, no_more),
        ("create Pod", {}, lose_all_pods),
        ("create Pod", {"rendezvous": {"backend": "c10d"}}, no_more),
        ("delete Pod", {}, scale_down),
        ("delete ElasticPyTorchJob", {"ttlSecondsAfterFinished": 1}, end),
        ("create Workload", {"queue": "team"}, no_more),
        ("list PriorityClass", {"queue": "team"}, no_more),
    ],
)
async def test_write_that_waits_for_a_slot_causes_no_plan(
    refused: str, spec: dict[str, Any], then: Callable[[World], Awaitable[None]]
) -> None:
    queue = CountedQueue()
    world = RunningController(
        RefusingCluster("" if then is not no_more else refused), queue, kueue=True
    )
    manifest = a_manifest(**{name: value for name, value in spec.items() if name != "queue"})
    manifest["metadata"]["labels"] = {kueue.LABEL_QUEUE: spec["queue"]} if "queue" in spec else {}
    async with world.runs():
        world.cluster.apply_job(manifest)
        if then is not no_more:
            await asyncio.sleep(5)
            world.cluster.calls.clear()
        world.cluster.refused = refused
        await then(world)
        tried = await tries(world)
        await asyncio.sleep(REFUSED_SECONDS - 3)
        assert world.cluster.calls.count(refused) == tried, "it is not due yet"
        world.slots.offer(Overload())
        await asyncio.sleep(8)
        queue.taken.clear()
        await asyncio.sleep(LOOK_SECONDS)
        assert world.cluster.calls.count(refused) == tried, "no write is sent in the pause"
        assert queue.taken[KEY] <= MAX_PLANS
        await asyncio.sleep(PAUSE_SECONDS)
        assert world.cluster.calls.count(refused) > tried, "it is sent after the pause"


async def tries(world: World) -> int:
    """Waits until the write was refused; returns how often it was tried."""
    async with asyncio.timeout(10):
        while not world.cluster.calls.count(world.cluster.refused):
            await asyncio.sleep(0.1)
    return world.cluster.calls.count(world.cluster.refused)
