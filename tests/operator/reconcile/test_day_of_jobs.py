"""Hours in virtual time: ended jobs leave nothing, and the unwatched is found again."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.resources import SERVICES
from elastic_pytorch_operator.reconcile.controller import RESYNC_SECONDS
from elastic_pytorch_operator.reconcile.workqueue import ENTRIES_PER_KEY, SPARE_ENTRIES

from tests.operator.builders import a_manifest
from tests.operator.counted_cluster import CountedCluster
from tests.operator.running_controller import (
    CountedQueue,
    RunningController,
    running_status,
    succeeded_status,
)

pytestmark = pytest.mark.simulation

HOUR = 3600.0
HALF_A_DAY = 12 * HOUR
KEPT = 8  # jobs that have ended, and stay for a week
PAUSE_SECONDS = 900.0  # from one new job to the next
TTL_SECONDS = 3600


class Day(RunningController[CountedCluster]):
    """An operator on a cluster in memory, and the agents of its jobs."""

    queue: CountedQueue

    def __init__(self) -> None:
        super().__init__(CountedCluster(nodes=4, pods_per_node=1000), CountedQueue())

    @property
    def plans(self) -> int:
        return self.queue.taken.total()

    async def run_job(self, name: str, ttl_seconds: int) -> None:
        """Creates a job of one worker, which trains for 20 seconds and succeeds."""
        sizes = {"replicas": 1, "minimum": 1, "maximum": 1}
        self.cluster.apply_job(a_manifest(name, **sizes, ttlSecondsAfterFinished=ttl_seconds))
        await asyncio.sleep(10)
        (pod,) = [
            pod
            for pod in self.cluster.pods()
            if pod["metadata"]["labels"][names.LABEL_JOB_NAME] == name
        ]
        pod_name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self.cluster.set_pod_status("default", pod_name, running_status())
        for second in range(25):
            self._speak(name, pod_name, uid, "succeeded" if second > 20 else "running", second)
            await asyncio.sleep(1)
        self.cluster.set_pod_status("default", pod_name, succeeded_status())

    def _speak(self, job: str, pod: str, uid: str, state: str, step: int) -> None:
        declared = self.round_of(job)
        beat: dict[str, Any] = {"state": "ready", "round": 0}
        if declared is not None and declared.size:
            progress = {"step": step, "firstStep": 0}
            beat = {
                "state": state,
                "round": declared.number,
                "rank": 0,
                "worldSize": 1,
                "progress": progress,
            }
        self.hear(pod, uid, beat)

    def sizes(self) -> Mapping[str, int]:
        """Of all that the operator keeps."""
        controller, executor = self.controller, self.controller._executor
        assert len(self.queue._heap) <= ENTRIES_PER_KEY * len(self.queue) + SPARE_ENTRIES
        return {
            "jobs": len(self.cache.keys),
            "queue": len(self.queue),
            "memories": len(controller._memories),
            "writers": len(controller._writers),
            "reporting": len(controller._reporting),
            "services": len(executor._services),
            "agents": len(self.registry._jobs),
            "pods": sum(1 for _ in self.cache.pods),
        }


async def test_half_a_day_of_ended_jobs_leaves_nothing_behind() -> None:
    day = Day()
    async with day.runs() as working:
        for number in range(KEPT):
            await day.run_job(f"kept-{number}", ttl_seconds=7 * 24 * 3600)
        running, hours, plans = set(), [], []
        next_hour, number, before = day.loop.time() + HOUR, 0, day.plans
        while day.loop.time() < HALF_A_DAY:
            task = asyncio.create_task(day.run_job(f"goes-{number}", TTL_SECONDS))
            running.add(task)
            task.add_done_callback(running.discard)
            number += 1
            await asyncio.sleep(PAUSE_SECONDS)
            assert not working.done()
            if day.loop.time() >= next_hour:
                hours.append(day.sizes())
                plans.append(day.plans - before)
                next_hour, before = next_hour + HOUR, day.plans
        ended = day.cluster.calls.count("delete ElasticPyTorchJob")
        assert ended >= number - TTL_SECONDS / PAUSE_SECONDS - 2
        steady = 2  # by then, as many jobs go as come
        for name in hours[0]:
            assert hours[-1][name] <= hours[steady][name] + 1, (
                name,
                [sizes[name] for sizes in hours],
            )
        assert hours[-1]["jobs"] <= KEPT + TTL_SECONDS / PAUSE_SECONDS + 2
        assert plans[-1] <= 1.05 * plans[steady], plans


async def test_service_that_was_deleted_is_made_again_within_minutes() -> None:
    day = Day()
    async with day.runs():
        day.cluster.apply_job(a_manifest())
        await asyncio.sleep(30)
        day.cluster._remove("Service", "default", "lm")
        await asyncio.sleep(RESYNC_SECONDS + 1)
        await day.cluster.get(SERVICES, "default", "lm")
