"""What the demo does to the job, and what it waits for."""

import time
from collections.abc import Callable
from typing import TypeVar

from elastic_pytorch_client.reading.job_view import Worker
from measure.commands import Commands
from measure.records import Done, Step
from measure.timeline import Resumption
from measure.watcher import Waited, Watcher

T = TypeVar("T")

OPERATOR_SECONDS = 30.0
START_SECONDS = 180.0  # pods start, import torch, meet
RECOVERY_SECONDS = 120.0
LOG_SECONDS = 15.0  # the status may be faster than the log
STEP_SECONDS = 5.0  # more than any step takes, on the busiest machine
STEPS_BETWEEN_ACTS = 60  # what agents import for later starts they have imported by then, on two busy cores too


class ActFailed(Exception):
    """The job did not do what the demo is there to show."""


class Play:
    """The acts, one after the other, on a job that has just been made."""

    def __init__(self, commands: Commands, watcher: Watcher, say: Callable[[str], None]) -> None:
        self.events: list[tuple[str, Resumption]] = []  # what has happened, and where training went on
        self._commands, self._watcher, self._say = commands, watcher, say
        self._timeline = watcher.timeline

    async def perform(self, replicas: int) -> Done:
        """Goes through all acts, and returns how the training ended."""
        await self.lose_and_grow(replicas)
        await self._scale(replicas + 1, 2)
        self._say("nothing more is done to it: it trains to its end")
        return await self._complete()

    async def lose_and_grow(self, replicas: int) -> None:
        """Goes through the first acts: a worker is killed and replaced, then another one joins. Afterwards it trains on."""
        what = "the operator to make the workers (is it installed?)"
        await self._wait(lambda: self._watcher.job.workers, OPERATOR_SECONDS, what)
        first = await self._wait(lambda: self._timeline.first(Step), START_SECONDS, "the first step")
        if first.world != replicas:
            self._say(f"training began with {first.world} workers, more will join")
        await self._wait(lambda: self._trains_with(replicas), START_SECONDS, f"{replicas} workers to train")
        self._say(f"{replicas} workers train")
        await self._settle()
        await self._kill_a_worker(replicas)
        await self._settle()
        await self._scale(replicas, replicas + 1)
        await self._settle()

    async def _kill_a_worker(self, replicas: int) -> None:
        members = self._members()
        if len(members) < 2:
            raise ActFailed(f"Of {replicas} workers the status names {len(members)} as training: none can be spared.")
        victim = members[-1]
        command = f"delete pod {victim.name} --grace-period=0 --force"
        self._say(f"kubectl {command}    (rank {victim.rank})")
        acted_at = time.time()
        await self._commands.kubectl(*command.split(), "--wait=false")
        survivors = await self._resumed(acted_at, f"the training to go on without {victim.name}")
        self._happened("a worker's pod is killed", survivors)
        if survivors.step.world < replicas:
            whole = await self._resumed(acted_at, f"the {replicas} workers to be complete again", replicas)
            self._happened("its replacement joins", whole)

    async def _scale(self, now: int, wanted: int) -> None:
        command = f"scale epj/{self._watcher.name} --replicas={wanted}"
        self._say(f"kubectl {command}")
        acted_at = time.time()
        await self._commands.kubectl(*command.split())
        resumed = await self._resumed(acted_at, f"the training to go on with {wanted} workers", wanted)
        self._happened("scaled up" if wanted > now else "scaled down", resumed)

    async def _resumed(self, acted_at: float, what: str, workers: int | None = None) -> Resumption:
        return await self._wait(lambda: self._timeline.resumption(acted_at, workers), RECOVERY_SECONDS, what)

    def _members(self) -> list[Worker]:
        return [worker for worker in self._watcher.job.members if worker.state == "Running"]

    def _trains_with(self, workers: int) -> bool:
        step = self._timeline.last(Step)
        return step is not None and step.world == workers == len(self._members())

    def _step_number(self) -> int:
        step = self._timeline.last(Step)
        return step.number if step else 0

    async def _settle(self) -> None:
        """Lets some steps go by, so that each act has a quiet moment before it."""
        goal = self._step_number() + STEPS_BETWEEN_ACTS
        await self._wait(lambda: self._step_number() >= goal, STEPS_BETWEEN_ACTS * STEP_SECONDS, f"step {goal}")

    async def _complete(self) -> Done:
        seconds = (self._timeline.every(Step)[-1].total - self._step_number()) * STEP_SECONDS + RECOVERY_SECONDS
        await self._wait(lambda: self._watcher.job.state == "Complete", seconds, "the job to be Complete")
        what = "rank 0 to print the validation loss"
        done = await self._wait(lambda: self._timeline.first(Done), LOG_SECONDS, what, ended=True)
        self._say(f"the job is Complete, validation loss {done.validation_loss:.3f}")
        return done

    async def _wait(self, found: Callable[[], T | None], seconds: float, what: str, *, ended: bool = False) -> T:
        """Waits until something is found; fails when that takes too long, or when it cannot come any more, as the job has ended."""

        def look() -> T | None:
            job = self._watcher.job
            if it := found():
                return it
            if self._watcher.broken:
                raise ActFailed(f"Cannot see the job any more: {self._watcher.broken!r}")
            if job.state == "Failed":
                condition = job.condition("Failed")
                raise ActFailed(f"The job failed while waiting for {what}: {condition.message if condition else None}")
            if self._watcher.deleted:
                raise ActFailed(f"Somebody deleted the job while waiting for {what}.")
            if job.state == "Complete" and not ended:
                raise ActFailed(f"The training ended while waiting for {what}: try again with more --steps.")
            return None

        try:
            return await self._watcher.until(look, seconds=seconds, what=what)
        except Waited:
            raise ActFailed(f"Waited {seconds:.0f} s for {what}, in vain.") from None

    def _happened(self, title: str, r: Resumption) -> None:
        self.events.append((title, r))
        workers = f"{r.last.world} -> {r.step.world} workers"
        self._say(f"{title}: {workers}, trains {r.seconds:.1f} s after, {r.steps_lost} steps lost")
