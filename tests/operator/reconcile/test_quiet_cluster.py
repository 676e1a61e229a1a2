"""While all jobs train, the operator does little, and still finds a lost worker."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from elastic_pytorch_operator.planning.plan_rounds import REGULAR_SECONDS
from elastic_pytorch_operator.planning.reporting.status_writes import PROGRESS_WRITES_PER_SECOND
from elastic_pytorch_operator.planning.workers.silence import (
    GROUP_SILENT,
    RECONNECT_SECONDS,
    SILENCE_SECONDS,
)
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import a_manifest
from tests.operator.counted_cluster import CountedCluster
from tests.operator.running_controller import RunningController, running_status

pytestmark = pytest.mark.simulation

WORKERS = 3
STEPS_PER_SECOND = 8
REST_SECONDS = 0.002
SERVICE_PLANS = 2  # when a job's Service is looked for again: one has it written, and one follows
START_SECONDS = 30.0  # until all jobs train, and the start is over


class TellingQueue(WorkQueue[JobKey]):
    """Keeps what it has handed out, and can be closed for a while, as if plans took long."""

    def __init__(self) -> None:
        super().__init__(clock=asyncio.get_running_loop().time)
        self.taken_out: list[JobKey] = []
        self.open = asyncio.Event()
        self.open.set()

    async def get(self) -> JobKey:
        await self.open.wait()
        key = await super().get()
        self.taken_out.append(key)
        return key

    def done(self, key: JobKey, rest_seconds: float = 0.0) -> None:
        """Rests the same time after a key on any machine: plans are measured in real time."""
        super().done(key, REST_SECONDS)


class QuietCluster(RunningController[CountedCluster]):
    """Jobs whose agents report a step with each heartbeat.

    Attributes:
        silent: pods whose agents say nothing any more.
        stepless: the scripts report no steps.
        stopped_at: by job, when its group has stopped, as one does that has lost a worker.
    """

    queue: TellingQueue

    def __init__(self, jobs: int) -> None:
        super().__init__(CountedCluster(nodes=4, pods_per_node=1000), TellingQueue())
        self.silent: set[str] = set()
        self.stepless = False
        self.stopped_at: dict[JobKey, float] = {}
        for number in range(jobs):
            self.cluster.apply_job(
                a_manifest(f"job-{number}", replicas=WORKERS, minimum=1, maximum=WORKERS)
            )

    async def speak(self) -> None:
        for pod in self.cluster.pods():
            self.cluster.set_pod_status("default", pod["metadata"]["name"], running_status())
        pods = [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in self.cluster.pods()]
        while True:
            for name, uid in pods:
                if name not in self.silent:
                    self._beat(name, uid)
            await asyncio.sleep(1)

    def _beat(self, name: str, uid: str) -> None:
        job = self.cache.worker("default", name, uid)
        if job is None:
            return
        declared = self.registry.job(job[1]).round
        beat: dict[str, Any] = {"state": "ready", "round": 0}
        if declared is not None and name in declared.ranks:
            group = {"rank": declared.ranks[name], "worldSize": declared.size}
            step = int(STEPS_PER_SECOND * self.stopped_at.get(job[0], self.loop.time()))
            beat = {"state": "running", "round": declared.number, **group}
            beat |= {} if self.stepless else {"progress": {"step": step, "firstStep": 0}}
        self.hear(name, uid, beat)

    def lose_worker(self, job: JobKey) -> str:
        """Has an agent fall silent, and its group stop; returns the worker."""
        lost = self.members(job)[1]
        self.silent.add(lost)
        self.stopped_at[job] = self.loop.time()
        return lost

    def members(self, job: JobKey) -> tuple[str, ...]:
        declared = self.round_of(job.name)
        assert declared is not None
        return declared.workers

    def step(self, job: JobKey) -> int:
        return int(self.cluster.job(job.name)["status"]["progress"]["step"])


@asynccontextmanager
async def quiet_cluster(jobs: int, *, stepless: bool = False) -> AsyncIterator[QuietCluster]:
    """A cluster all of whose jobs train."""
    found = QuietCluster(jobs)
    found.stepless = stepless
    async with found.runs():
        await asyncio.sleep(5)
        speaking = asyncio.create_task(found.speak())
        await asyncio.sleep(START_SECONDS)
        yield found
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)


async def test_steps_cause_few_plans_and_few_writes() -> None:
    seconds = 30
    async with quiet_cluster(100) as quiet:
        plans = len(quiet.queue.taken_out)
        calls = Counter(quiet.cluster.calls)
        began = quiet.loop.time()
        await asyncio.sleep(seconds)
        planned = Counter(quiet.queue.taken_out[plans:])
        written = Counter(quiet.cluster.calls) - calls
        assert set(written) <= {"patch ElasticPyTorchJob/status", "get Service", "create Service"}
        assert (
            written["patch ElasticPyTorchJob/status"] <= 1.2 * seconds * PROGRESS_WRITES_PER_SECOND
        )
        assert all(
            quiet.step(key) >= STEPS_PER_SECOND * (began + seconds / 2) for key in quiet.cache.keys
        )
        writes = written["patch ElasticPyTorchJob/status"] / seconds
        print(f"{writes:.1f} writes a second; {planned.total() / 100 / seconds:.2f} plans of a job")
        most = seconds / REGULAR_SECONDS + 1 + SERVICE_PLANS
        assert max(planned.values()) <= most, (
            "one for each window of work, and none for a heartbeat that is not late"
        )


async def test_worker_that_falls_silent_is_lost_in_time() -> None:
    async with quiet_cluster(1) as quiet:
        [job] = quiet.cache.keys
        lost = quiet.lose_worker(job)
        await asyncio.sleep(SILENCE_SECONDS - 1.1)
        assert lost in quiet.members(job)
        await asyncio.sleep(2.2)
        assert lost not in quiet.members(job)


async def test_group_that_stays_silent_is_lost_once_others_are_heard_again() -> None:
    """While no agent of any job is heard, no silence counts: a later plan finds this out."""
    async with quiet_cluster(2, stepless=True) as quiet:
        lost, heard = quiet.cache.keys
        pods = quiet.members(lost) + quiet.members(heard)
        quiet.silent.update(pods)
        await asyncio.sleep(GROUP_SILENT.at_most_seconds + 5)
        assert quiet.members(lost) + quiet.members(heard) == pods, (
            "the fault may be on the operator's side"
        )
        quiet.silent.difference_update(quiet.members(heard))
        await asyncio.sleep(GROUP_SILENT.at_most_seconds)
        assert quiet.members(lost) + quiet.members(heard) == pods, (
            "its agents may need a while to come back"
        )
        await asyncio.sleep(RECONNECT_SECONDS + 2)
        assert not set(quiet.members(lost)) & set(pods)
        assert set(quiet.members(heard)) <= set(pods)


async def test_job_whose_worker_may_be_lost_is_planned_before_those_that_make_progress() -> None:
    async with quiet_cluster(10) as quiet:
        job = quiet.cache.keys[7]
        quiet.lose_worker(job)
        await asyncio.sleep(SILENCE_SECONDS - 1.2)
        # Which are all heard.
        for key in quiet.cache.keys:
            if key != job:
                quiet.queue.add(key, urgent=False)
        await asyncio.sleep(0.1)
        quiet.queue.open.clear()
        for key in quiet.cache.keys:
            quiet.queue.add(key, urgent=False)
        await asyncio.sleep(1.2)
        taken = len(quiet.queue.taken_out)
        quiet.queue.open.set()
        await asyncio.sleep(0.1)
        assert quiet.queue.taken_out[taken] == job
