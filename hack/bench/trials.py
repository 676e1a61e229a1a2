"""Makes trial after trial: a fault to a whole job, and what it has cost once the job is whole again."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import Protocol, TypeVar

from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_local.faults import engine
from elastic_pytorch_local.faults.engine import Target, made
from elastic_pytorch_local.faults.outcome import Outcome, outcome
from elastic_pytorch_local.faults.steps import Step
from elastic_pytorch_local.faults.watcher import Waited

K_contra = TypeVar("K_contra", bound="Named", contravariant=True)

# Later with each turn, within a second: faults come at all points of heartbeats and checkpoints,
# which take a second.
PHASE_SECONDS = 0.3
LOG_SECONDS = 1.0  # what is still on its way when the status already tells that the job is whole
TROUBLE = (RuntimeError, ValueError, *engine.TROUBLE)


class Named(Protocol):
    @property
    def name(self) -> str: ...


class Stage(Protocol[K_contra]):
    async def prepare(self, kind: K_contra, *, again: bool) -> None:
        """Has the job train in the size that a trial begins with; again: in the job of the trial before, if that is as good."""

    async def choose(self, kind: K_contra, turn: int) -> Target:
        """Finds what the fault of a kind is to be made to, in its turn from 0."""

    def wanted(self, kind: K_contra) -> int:
        """How many workers there are to be after a fault."""

    async def recovered(self, kind: K_contra, at: float) -> None:
        """Waits until a number of workers train after a fault."""

    def steps(self, since: float) -> list[Step]:
        """The steps of rank 0 from a moment on, and at least the last one before."""

    def view(self) -> JobView | None:
        """The job as its status has it; None: it has none that is known."""

    async def side_effects(self, target: Target | None, at: float) -> tuple[int, float | None]:
        """What others felt since the last call: restarts, and seconds to another pod; without a target, begins to look."""

    async def explain(self, trial: str) -> None:
        """Keeps what is needed to understand a trial that has failed."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial.

    Attributes:
        job: what it was made to.
        cost: None: it failed.
        restarts: container restarts, and disappearances, of pods that had nothing to do with the
            fault.
        replaced: seconds from the fault to the operator's making of another pod; None: it made
            none.
        error: why it failed; empty: it did not.
    """

    job: str
    kind: str
    when: str
    what: str = ""
    cost: Outcome | None = None
    restarts: int = 0
    replaced: float | None = None
    error: str = ""


async def run(
    stage: Stage[K_contra],
    job: str,
    ordered: Sequence[tuple[K_contra, int]],
    keep: Callable[[Trial], None],
    say: Callable[[str], None],
    *,
    hopeless: float = inf,
) -> None:
    """Makes trials, each of a kind in its turn.

    Args:
        hopeless: how many trials in a row have failed when no other one begins.
    """
    failed, again = 0, False
    for kind, turn in ordered:
        if failed >= hopeless:
            return
        trial = await _trial(stage, job, kind, turn, say, again=again)
        failed, again = (failed + 1, False) if trial.error else (0, True)
        if trial.error:
            with suppress(*TROUBLE):
                await stage.explain(f"{job}-{kind.name}-{turn + 1}")
        keep(trial)
        say(f"  {kind.name} {turn + 1}: {describe(trial)}")


async def _trial(
    stage: Stage[K_contra],
    job: str,
    kind: K_contra,
    turn: int,
    say: Callable[[str], None],
    *,
    again: bool,
) -> Trial:
    trial = Trial(job, kind.name, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
    try:
        await stage.prepare(kind, again=again)
        await asyncio.sleep(PHASE_SECONDS * turn % 1.0)
        target = await stage.choose(kind, turn)
        trial = replace(trial, what=target.what)
        before = stage.view()
        await stage.side_effects(None, 0.0)
        async with made(target, say) as at:
            await stage.recovered(kind, at)
            await asyncio.sleep(LOG_SECONDS)
            restarts, replaced = await stage.side_effects(target, at)
            cost = outcome(stage.steps(at), at, stage.wanted(kind), before, stage.view())
        if cost is None:
            raise Waited("no step was told of after the fault")
        return replace(trial, cost=cost, restarts=restarts, replaced=replaced)
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
    told = [
        f"{label} {value:.2f} s"
        for label, value in (times | {"pod made": trial.replaced}).items()
        if value is not None
    ]
    counts = {"steps repeated": cost.repeated, "rounds": cost.rounds}
    counts |= {"healthy pods restarted": trial.restarts, "failures counted": cost.failures}
    told += [f"{label}: {count}" for label, count in counts.items() if count]
    return ", ".join([*told, trial.what])


def values(trials: Iterable[Trial], name: str) -> list[float]:
    """Returns one figure, of a trial or of its cost, of all trials that have it."""
    found = (
        getattr(trial if hasattr(trial, name) else trial.cost, name)
        for trial in trials
        if trial.cost
    )
    return [value for value in found if value is not None]
