"""Makes trial after trial, and cleans up after itself."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
from measure.api import ApiError
from measure.commands import CommandFailed
from measure.watcher import Waited

from kubeflow.jobs import SIZE, SMALLEST
from kubeflow.losses import Kind
from kubeflow.pauses import figures
from kubeflow.report import describe
from kubeflow.results import Trial
from kubeflow.stage import RECOVERY_SECONDS, Stage

# Later with each turn, within a second: losses come at all points of heartbeats and checkpoints, which take a second.
PHASE_SECONDS = 0.3
HOPELESS = 3  # trials in a row that have failed
TROUBLE = (Waited, ApiError, CommandFailed, ValueError, TimeoutError, aiohttp.ClientError)


@dataclass(frozen=True, slots=True)
class Course:
    """The trials of one job.

    Attributes:
        kinds: that are made in turns.
        turns: of each.
        end: a time of `time.monotonic` after which no trial begins.
        keep: takes each trial as soon as it is made.
        keep_logs: takes the name of a trial that has failed, and what is needed to understand it.
        say: tells a person.
    """

    kinds: Sequence[Kind]
    turns: int
    end: float
    keep: Callable[[Trial], None]
    keep_logs: Callable[[str, str], None]
    say: Callable[[str], None]

    def order(self) -> Iterator[tuple[int, Kind]]:
        return ((turn, kind) for turn in range(self.turns) for kind in self.kinds)

    async def run(self, stage: Stage) -> int:
        """Makes the trials; returns how many there was no time for, or no hope of."""
        ordered, failed = list(self.order()), 0
        try:
            for number, (turn, kind) in enumerate(ordered):
                if time.monotonic() > self.end or failed == HOPELESS:
                    return len(ordered) - number
                trial = await self._trial(stage, kind, turn, again=bool(number) and not failed)
                failed = failed + 1 if trial.error else 0
                self.keep(trial)
                self.say(f"  {kind.name} {turn + 1}: {describe(trial)}")
        finally:
            await stage.remove()
        return 0

    async def _trial(self, stage: Stage, kind: Kind, turn: int, *, again: bool) -> Trial:
        """Makes a trial, in the job of the trial before if that is as good as a new one."""
        when, pod = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", ""
        try:
            await self._prepare(stage, kind, again=again)
            await asyncio.sleep(PHASE_SECONDS * turn % 1.0)
            at, pod = await stage.hurt(kind)
            await stage.recovered(at)
            return Trial(stage.job.name, kind.name, when, pod, figures(stage.record.steps(), at, SIZE))
        except TROUBLE as trouble:
            with suppress(*TROUBLE):
                self.keep_logs(f"{stage.job.name}-{kind.name}-{turn + 1}", await stage.logs())
            return Trial(stage.job.name, kind.name, when, pod, None, f"{type(trouble).__name__}: {trouble}")

    async def _prepare(self, stage: Stage, kind: Kind, *, again: bool) -> None:
        """Has the job train in the size that a trial begins with.

        A job whose containers have been started again is made again: the kubelet would pause before it starts them the next time, which
        does not happen to losses that are ten minutes apart.
        """
        if not again or await stage.restarts():
            await stage.make()
        if kind.grows:
            await stage.scale(SMALLEST)
        await stage.train(SMALLEST if kind.grows else SIZE, RECOVERY_SECONDS)
