"""Does to a job what clusters do to jobs, and notes what each act has cost."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from elastic_pytorch_client.reading.history import HistoryEntry
from elastic_pytorch_client.reading.job_view import RUNNING, JobView, Worker

from elastic_pytorch_local.faults.cost import (
    NOT_SEEN,
    ChangeCost,
    describe_cost,
    step_seconds_before,
    told_cost,
)
from elastic_pytorch_local.faults.driver import Driver
from elastic_pytorch_local.faults.steps import Change, changes
from elastic_pytorch_local.faults.watcher import Waited, Watcher

T = TypeVar("T")

OPERATOR_SECONDS = 300.0
MAKE_SECONDS = 120.0
HANG_SECONDS = 3600.0  # longer than starts and steps take on the busiest machine
FIRST_STEP_SECONDS = 60.0
SETTLE_SECONDS = 8.0  # before each act, in which agents finish their imports for later starts
REPLACED = "its replacement joins"
PACE_SECONDS = 60.0  # before a change, with at least two steps of the group


class ActFailed(Exception):
    pass


class Acts:
    def __init__(self, driver: Driver, watcher: Watcher, say: Callable[[str], None]) -> None:
        self.costs: list[ChangeCost] = []
        self._driver, self._watcher, self._say = driver, watcher, say

    async def perform(self) -> None:
        await self.begin()
        for act in (self.kill_a_rank, self.lose_a_pod, self.grow, self.shrink):
            await self.settle()
            await act()

    async def begin(self) -> None:
        watcher, what = self._watcher, "the operator to make the workers (is it installed?)"
        await self._wait(lambda: watcher.job.workers, OPERATOR_SECONDS, what)
        wanted = watcher.job.wanted
        what = f"{wanted} workers to train"
        await self._wait(lambda: trains_with(watcher.job, wanted), HANG_SECONDS, what)
        try:
            await self._look(lambda: watcher.progress.step, FIRST_STEP_SECONDS, "the first step")
        except Waited:
            self._say(NOT_SEEN)
        self._say(f"{wanted} workers train")

    async def settle(self) -> None:
        until = time.monotonic() + SETTLE_SECONDS
        await self._wait(lambda: time.monotonic() >= until, HANG_SECONDS, "the next act")

    async def kill_a_rank(self) -> None:
        victim, pids = self._victim(), self._watcher.log.pids
        if not pids.get(victim.name):
            self._say("no rank is killed: no agent has told the id of its process")
            return
        pod, pid = self._watcher.pods[victim.name], pids[victim.name][0]
        what = f"SIGKILL to process {pid} of {victim.name}"
        await self._lose("a rank is killed", victim, what, self._driver.kill_process(pod, pid))

    async def lose_a_pod(self) -> None:
        victim = self._victim()
        what = f"kubectl delete pod {victim.name} --grace-period=0 --force"
        deleted = self._driver.delete_pod(victim.name, force=True)
        await self._lose("a pod is lost", victim, what, deleted)

    async def grow(self) -> None:
        job = self._watcher.job
        larger = min((size for size in job.sizes if size > job.size), default=None)
        await self._scale("it grows", larger, "has its largest size")

    async def shrink(self) -> None:
        job = self._watcher.job
        smaller = max((size for size in job.sizes if size < job.size), default=None)
        await self._scale("it shrinks", smaller, "has its smallest size")

    def _victim(self) -> Worker:
        if not (members := self._watcher.job.members):
            raise ActFailed("The status names no worker as training: none can be spared.")
        return members[-1]

    async def _lose(self, event: str, victim: Worker, what: str, act: Awaitable[object]) -> None:
        size = self._watcher.job.size
        round_, at = await self._make(f"{what}    (rank {victim.rank})", act)
        survivors = await self._resumed(event, round_, at, "the training to go on")
        if survivors.workers < size:
            what = f"the {size} workers to be complete again"
            await self._resumed(REPLACED, round_, at, what, size, planned=True)

    async def _scale(self, event: str, wanted: int | None, why_not: str) -> None:
        if wanted is None:
            self._say(f"it is not scaled: the job {why_not}")
            return
        name = self._watcher.name
        scaled = self._driver.scale_job(name, wanted)
        round_, at = await self._make(f"kubectl scale epj/{name} --replicas={wanted}", scaled)
        what = f"the training to go on with {wanted} workers"
        await self._resumed(event, round_, at, what, wanted, planned=True)

    async def _make(self, what: str, act: Awaitable[object]) -> tuple[int, float]:
        """Returns the round before an act, and its time."""
        self._say(what)
        round_, at = self._watcher.job.round, time.time()
        done = await asyncio.wait_for(act, MAKE_SECONDS)
        return round_, done if isinstance(done, float) else at

    async def _resumed(
        self,
        event: str,
        round_: int,
        at: float,
        what: str,
        workers: int | None = None,
        *,
        planned: bool = False,
    ) -> ChangeCost:
        """Waits until a later group trains, of a size if there is one; notes the cost.

        Where only the log has the steps, it waits for the log, too.
        """

        def seen() -> tuple[HistoryEntry | None, Change | None] | None:
            over = (each for each in self._watcher.job.recent_interruptions if each.round > round_)
            status = next((each for each in over if workers in (None, each.workers)), None)
            printed = changes(self._watcher.log.steps(at - PACE_SECONDS), at)
            log = next((each for each in printed if workers in (None, each.first.world)), None)
            reports = status is not None and status.steps_lost is not None
            prints = self._watcher.log.last() is not None
            return (status, log) if reports or (status and (log or not prints)) else None

        status, log = await self._wait(seen, HANG_SECONDS, what)
        pace = step_seconds_before(self._watcher.log.steps(at - PACE_SECONDS), log)
        ready = time.time() - at if event == REPLACED else None
        cost = told_cost(
            event, planned=planned, status=status, log=log, step_seconds=pace, ready_seconds=ready
        )
        self.costs.append(cost)
        self._say(describe_cost(cost))
        return cost

    async def _wait(self, found: Callable[[], T | None], seconds: float, what: str) -> T:
        try:
            return await self._look(found, seconds, what)
        except Waited:
            raise ActFailed(f"Waited {seconds:.0f} s for {what}, in vain.") from None

    async def _look(self, found: Callable[[], T | None], seconds: float, what: str) -> T:
        def look() -> T | None:
            job = self._watcher.job
            if it := found():
                return it
            if self._watcher.broken:
                raise ActFailed(f"Cannot see the job any more: {self._watcher.broken!r}")
            if job.state == "Failed":
                condition = job.condition("Failed")
                why = condition.message if condition else None
                raise ActFailed(f"The job failed while waiting for {what}: {why}")
            if self._watcher.deleted:
                raise ActFailed(f"The job was deleted while waiting for {what}.")
            if job.state == "Complete":
                raise ActFailed(f"The training ended while waiting for {what}: give it more steps.")
            return None

        return await self._watcher.until(look, seconds=seconds, what=what)


def trains_with(job: JobView, workers: int) -> bool:
    over = job.last_interruption is None or job.last_interruption.round == job.round
    return over and [worker.state for worker in job.members] == [RUNNING] * workers
