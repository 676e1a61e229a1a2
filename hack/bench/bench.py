"""Makes trial after trial."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import aiohttp
from api import ApiError
from commands import CommandFailed
from records import Declared
from report import describe
from results import Result
from scenarios import Fault, Scenario
from stage import Stage
from trial import Trial, figures, story
from watcher import Waited

PHASE_SECONDS = (
    0.3  # later with each turn, within a second: faults come at all points of heartbeats and checkpoints, which take a second
)
LOG_SECONDS = 1.0  # what is still on its way when the status already tells that the job is whole
TROUBLE = (Waited, ApiError, CommandFailed, RuntimeError, TimeoutError, aiohttp.ClientError)


async def run(
    stage: Stage, scenarios: list[tuple[Scenario, int]], keep: Callable[[Result], None], say: Callable[[str], None]
) -> None:
    """Make trials, each on a whole job.

    Args:
        stage: the job.
        scenarios: each with the number of its turn, from 0.
        keep: takes a result.
        say: tells people what is going on.
    """
    made: bool | None = None  # with a handler or without; None: there is none to go on with
    for scenario, turn in scenarios:
        handler = bool(scenario.like)
        try:
            if made is not handler:
                await stage.make(handler=handler)
                made = handler
            await stage.prepare(scenario.replicas)
            await asyncio.sleep(PHASE_SECONDS * turn % 1.0)
        except TROUBLE as error:
            say(f"  cannot begin: {error}")
            made = None
            keep(Result(scenario.name, _now(), "", None, error=f"cannot begin: {error}"))
            continue
        result = await _trial(stage, scenario, turn)
        keep(result)
        say(f"  {scenario.name} {turn + 1}: {describe(result)}")
        made = None if result.error else handler


async def _trial(stage: Stage, scenario: Scenario, turn: int) -> Result:
    """Make a fault, wait until the job is whole again, and undo it."""
    watcher = stage.watcher
    restarts, failures = stage.restart_counts(), watcher.status.get("failures", 0)
    fault: Fault | None = None
    when, error = _now(), ""
    measured, told, rounds = None, [], []
    try:
        async with AsyncExitStack() as undo:
            fault = await scenario.inject(stage, turn, undo)
            await stage.whole(fault.wanted)
            await asyncio.sleep(LOG_SECONDS)
            trial = Trial(
                fault_at=fault.at,
                wanted=fault.wanted,
                before=scenario.replicas,
                records=tuple(watcher.records),
                restarts=stage.restarts_since(restarts, fault.victims),
                failures=watcher.status.get("failures", 0) - failures,
                ended_at=datetime.now(UTC).timestamp(),
            )
            measured, told = figures(trial), story(trial)
    except TROUBLE as trouble:
        error = f"{type(trouble).__name__}: {trouble}"
    if fault:
        for record in watcher.records:
            if isinstance(record, Declared) and record.at > fault.at:
                rounds.append((round(record.at - fault.at, 3), f"{record.round} {record.reason}: {record.cause}"))
    return Result(scenario.name, when, fault.text if fault else "", measured, told, rounds, error)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
