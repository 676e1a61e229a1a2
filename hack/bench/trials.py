"""Makes one trial after another: a fault to a whole job, and its cost once it is whole again."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_local.faults.steps import Step
from elastic_pytorch_local.faults.watcher import Waited
from measure import engine, markdown
from measure.cluster import ClusterDriver
from measure.engine import Say, Target, made
from measure.kind_cluster import report
from measure.outcome import Outcome, outcome

K_contra = TypeVar("K_contra", bound="Named", contravariant=True)

# Later with each turn, within a second: heartbeats and checkpoints take one, and faults come at all
# of its points.
PHASE_SECONDS = 0.3
LOG_SECONDS = 1.0  # by which the log may be later than the status
TROUBLE = (RuntimeError, ValueError, *engine.TROUBLE)


class Named(Protocol):
    @property
    def name(self) -> str: ...


class Stage(Protocol[K_contra]):
    driver: ClusterDriver

    async def prepare(self, kind: K_contra, *, again: bool) -> None:
        """Has the job train in the size of the kind; again: perhaps in the last trial's job."""

    async def choose(self, kind: K_contra, turn: int) -> Target:
        """The target of a kind of fault, in its turn from 0."""

    def wanted(self, kind: K_contra) -> int:
        """The number of workers after a fault."""

    async def recovered(self, kind: K_contra, at: float) -> None:
        """Waits until these workers train after a fault."""

    def steps(self, since: float) -> list[Step]:
        """The steps of rank 0 since a moment, and at least the last one before."""

    def view(self) -> JobView | None:
        """The job by its status; None: unknown."""
        return None

    def restarts(self, target: Target | None) -> int:
        """Others' restarts since the call without a target."""
        return 0


@dataclass(frozen=True, slots=True)
class Trial:
    job: str
    kind: str
    what: str = ""
    cost: Outcome | None = None  # None: the trial failed
    restarts: int = 0  # and disappearances of pods that the fault did not concern
    error: str = ""


async def run(
    stage: Stage[K_contra],
    job: str,
    ordered: Sequence[tuple[K_contra, int]],
    keep: Callable[[Trial], None],
    say: Say,
) -> None:
    again = False
    for kind, turn in ordered:
        trial = await _trial(stage, job, kind, turn, say, again=again)
        again = not trial.error
        if trial.error:
            with suppress(*TROUBLE):
                name = f"{job}-{kind.name}-{turn + 1}"
                await asyncio.to_thread(report, stage.driver.namespace, name)
        keep(trial)
        say(f"  {kind.name} {turn + 1}: {describe(trial)}")


async def _trial(
    stage: Stage[K_contra], job: str, kind: K_contra, turn: int, say: Say, *, again: bool
) -> Trial:
    trial = Trial(job, kind.name)
    try:
        await stage.prepare(kind, again=again)
        await asyncio.sleep(PHASE_SECONDS * turn % 1.0)
        target = await stage.choose(kind, turn)
        trial = replace(trial, what=target.what)
        before = stage.view()
        stage.restarts(None)
        async with made(target, say) as at:
            await stage.recovered(kind, at)
            await asyncio.sleep(LOG_SECONDS)
            restarts = stage.restarts(target)
            cost = outcome(stage.steps(at), at, stage.wanted(kind), before, stage.view())
        if cost is None:
            raise Waited("no step was told of after the fault")
        return replace(trial, cost=cost, restarts=restarts)
    except TROUBLE as trouble:
        return replace(trial, error=f"{type(trouble).__name__}: {trouble}")


def describe(trial: Trial) -> str:
    cost = trial.cost
    if cost is None:
        return f"FAILED: {trial.error}"
    times = {
        "trains again": cost.again,
        "pause": cost.pause,
        "stands still": cost.stopped,
        "at size": cost.whole,
    }
    counts = {
        "steps repeated": cost.repeated,
        "rounds": cost.rounds,
        "healthy pods restarted": trial.restarts,
        "failures counted": cost.failures,
    }
    shown = [f"{label} {value:.2f} s" for label, value in times.items() if value is not None]
    shown += [f"{label}: {count}" for label, count in counts.items() if count]
    return ", ".join([*shown, trial.what])


def values(trials: Iterable[Trial], name: str) -> list[float]:
    """A figure of all trials that have it, of a trial or of its cost."""
    having = (t if hasattr(t, name) else t.cost for t in trials if t.cost)
    found = (getattr(each, name) for each in having)
    return [value for value in found if value is not None]


def cells(trials: Sequence[Trial], names: Sequence[str]) -> list[str]:
    """The spread of each figure and of the repeated steps, and how many trials have them."""
    spreads = [markdown.spread(values(trials, name)) for name in names]
    repeated = markdown.spread(values(trials, "repeated"), digits=0)
    return [*spreads, repeated, f"{sum(bool(t.cost) for t in trials)} of {len(trials)}"]
