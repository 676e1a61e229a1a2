"""What the demo does to the job, and what it waits for: the job's status tells it, or the log of the workers does."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from elastic_pytorch_client.reading.history import HistoryEntry
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_local.faults import engine
from elastic_pytorch_local.faults.driver import Driver
from elastic_pytorch_local.faults.engine import Target
from elastic_pytorch_local.faults.outcome import Change, changes
from elastic_pytorch_local.faults.steps import Done
from elastic_pytorch_local.faults.watcher import Waited, Watcher

from demo.view import InterruptionRow

T = TypeVar("T")

OPERATOR_SECONDS = 300.0
HANG_SECONDS = 3600.0  # bounds a hang, not the time that starts and steps take on the busiest machine
LOG_SECONDS = 15.0  # one of the log and the status may be faster than the other
STEPS_BETWEEN_ACTS = 60  # what agents import for later starts they have imported by then, on two busy cores too


class ActFailed(Exception):
    """The job did not do what the demo is there to show."""


class Play:
    """The acts, one after the other, on a job that has just been made."""

    def __init__(self, driver: Driver, watcher: Watcher, say: Callable[[str], None]) -> None:
        self.events: list[InterruptionRow] = []  # what has happened, and what it has cost
        self._driver, self._watcher, self._say = driver, watcher, say

    async def perform(self, replicas: int) -> Done | None:
        await self.lose_and_grow(replicas)
        await self._scale(replicas + 1, 2)
        self._say("nothing more is done to it: it trains to its end")
        return await self._complete()

    async def lose_and_grow(self, replicas: int) -> None:
        """Goes through the first acts: a worker is killed and replaced, then another one joins. Afterwards it trains on."""
        what = "the operator to make the workers (is it installed?)"
        await self._wait(lambda: self._watcher.job.workers, OPERATOR_SECONDS, what)
        await self._wait(lambda: self._watcher.progress.step, HANG_SECONDS, "the first step")
        if (size := self._watcher.job.size) != replicas:
            self._say(f"training began with {size} workers, more will join")
        await self._wait(lambda: trains_with(self._watcher.job, replicas), HANG_SECONDS, f"{replicas} workers to train")
        self._say(f"{replicas} workers train")
        await self._settle()
        await self._kill_a_worker(replicas)
        await self._settle()
        await self._scale(replicas, replicas + 1)
        await self._settle()

    async def _kill_a_worker(self, replicas: int) -> None:
        members = self._watcher.job.members
        if len(members) < 2:
            raise ActFailed(f"Of {replicas} workers the status names {len(members)} as training: none can be spared.")
        victim = members[-1]
        target = engine.delete_pod(self._driver, victim.name, self._watcher.name, force=True)
        round_, at = await self._make(target, f"    (rank {victim.rank})")
        what = f"the training to go on without {victim.name}"
        survivors = await self._resumed("a worker's pod is killed", round_, at, what)
        if survivors.workers < replicas:
            what = f"the {replicas} workers to be complete again"
            await self._resumed("its replacement joins", round_, at, what, replicas)

    async def _scale(self, now: int, wanted: int) -> None:
        round_, at = await self._make(engine.scale(self._driver, self._watcher.name, wanted))
        title = "scaled up" if wanted > now else "scaled down"
        await self._resumed(title, round_, at, f"the training to go on with {wanted} workers", wanted)

    async def _make(self, target: Target, remark: str = "") -> tuple[int, float]:
        """Makes a fault; returns the round before it, and when it was made."""
        self._say(f"{target.what}{remark}")
        round_ = self._watcher.job.round
        async with engine.made(target, self._say) as at:
            return round_, at

    async def _resumed(self, title: str, round_: int, at: float, what: str, workers: int | None = None) -> InterruptionRow:
        """Waits until a later group trains, by the status or by the log, and notes what both tell.

        Args:
            round_: the last one before.
            at: when it was made to happen, seconds since the epoch.
        """

        def told() -> list[HistoryEntry | Change]:
            over = (each for each in self._watcher.job.recent_interruptions if each.round > round_)
            by_status = next((each for each in over if workers in (None, each.workers)), None)
            seen = changes(self._watcher.log.steps(at), at)
            by_log = next((each for each in seen if workers in (None, each.first.world)), None)
            return [each for each in (by_status, by_log) if each]

        await self._wait(told, HANG_SECONDS, what)
        await self._look(lambda: len(told()) == 2)
        row = row_of(title, told(), at)
        self.events.append(row)
        after = "after a time that is not known" if row.again_seconds is None else f"{row.again_seconds:.1f} s after"
        lost = "an unknown number of" if row.steps_lost is None else row.steps_lost
        self._say(f"{title}: {row.before} -> {row.workers} workers, trains {after}, {lost} steps lost")
        return row

    async def _settle(self) -> None:
        """Lets some steps go by, so that each act has a quiet moment before it."""
        goal = (self._watcher.progress.step or 0) + STEPS_BETWEEN_ACTS
        await self._wait(lambda: (self._watcher.progress.step or 0) >= goal, HANG_SECONDS, f"step {goal}")

    async def _complete(self) -> Done | None:
        await self._wait(lambda: self._watcher.job.state == "Complete", HANG_SECONDS, "the job to be Complete")
        done = await self._look(lambda: self._watcher.log.done)
        told = f"validation loss {done.validation_loss:.3f}" if done else "and its log does not tell the validation loss"
        self._say(f"the job is Complete, {told}")
        return done

    async def _look(self, found: Callable[[], T | None]) -> T | None:
        """Returns what is found within a short time; None: nothing."""
        try:
            return await self._watcher.until(found, seconds=LOG_SECONDS, what="the rest")
        except Waited:
            return None

    async def _wait(self, found: Callable[[], T | None], seconds: float, what: str) -> T:
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
            if job.state == "Complete":
                raise ActFailed(f"The training ended while waiting for {what}: try again with more --steps.")
            return None

        try:
            return await self._watcher.until(look, seconds=seconds, what=what)
        except Waited:
            raise ActFailed(f"Waited {seconds:.0f} s for {what}, in vain.") from None


def trains_with(job: JobView, workers: int) -> bool:
    stepped = job.last_interruption.round == job.round if job.last_interruption else job.progress.step is not None
    return stepped and [worker.state for worker in job.members] == ["Running"] * workers


def row_of(title: str, told: Sequence[HistoryEntry | Change], at: float) -> InterruptionRow:
    """What a change of the group has cost.

    Args:
        told: of it by the status, by the log, or by both.
        at: when it was made to happen, seconds since the epoch.
    """
    over = next((each for each in told if isinstance(each, HistoryEntry)), None)
    seen = next((each for each in told if isinstance(each, Change)), None)
    before, after = (over.before, over.workers) if over else (None, None)
    seconds, lost = (over.seconds, over.steps_lost) if over else (None, None)
    if seen is None:
        return InterruptionRow(title, before or 0, after or 0, seconds, None, lost)
    again, lost = seen.first.at - at, seen.repeated if lost is None else lost
    return InterruptionRow(title, before or seen.last.world, after or seen.first.world, again, seen.pause_seconds, lost)
