"""Makes trial after trial."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime

import aiohttp
from measure.api import ApiError
from measure.commands import CommandFailed
from measure.records import Declared
from measure.watcher import Waited

from bench.report import describe
from bench.results import Result, measure, story
from bench.scenarios import Fault, Scenario
from bench.stage import Stage

# Later with each turn, within a second: faults come at all points of heartbeats and checkpoints, which take a second.
PHASE_SECONDS = 0.3
LOG_SECONDS = 1.0  # what is still on its way when the status already tells that the job is whole
TROUBLE = (Waited, ApiError, CommandFailed, RuntimeError, TimeoutError, aiohttp.ClientError)


async def run(
    stage: Stage, scenarios: Sequence[tuple[Scenario, int]], keep: Callable[[Result], None], say: Callable[[str], None]
) -> None:
    """Makes trials, each on a whole job: of each scenario the one with the number of its turn, from 0."""
    made: bool | None = None  # with a handler or without; None: there is none to go on with
    for scenario, turn in scenarios:
        handler = bool(scenario.like)
        try:
            if made is not handler:
                await stage.make(handler=handler)
                made = handler
            if stage.watcher.job.wanted != scenario.replicas:
                await stage.scale(scenario.replicas)
            await stage.whole(scenario.replicas)
            await asyncio.sleep(PHASE_SECONDS * turn % 1.0)
        except TROUBLE as error:
            result = replace(_nothing_yet(scenario), error=f"cannot begin: {error}")
            say(f"  {result.error}")
        else:
            result = await _trial(stage, scenario, turn)
            say(f"  {scenario.name} {turn + 1}: {describe(result)}")
        keep(result)
        made = None if result.error else handler


async def _trial(stage: Stage, scenario: Scenario, turn: int) -> Result:
    """Makes a fault, waits until the job is whole again, and undoes it."""
    watcher, result = stage.watcher, _nothing_yet(scenario)
    restarts, failures = stage.restarts(stage.members()), watcher.job.failures
    fault: Fault | None = None
    try:
        async with AsyncExitStack() as undo:
            fault = await scenario.inject(stage, turn, undo)
            await stage.whole(fault.wanted)
            await asyncio.sleep(LOG_SECONDS)
            timeline = watcher.timeline.until(time.time())
            restarted, failed = stage.restarts_since(restarts, fault.victims), watcher.job.failures - failures
            figures = measure(timeline, fault.at, wanted=fault.wanted, restarts=restarted, failures=failed)
            result = replace(result, figures=figures, story=story(timeline, fault.at))
    except TROUBLE as trouble:
        result = replace(result, error=f"{type(trouble).__name__}: {trouble}")
    if fault is None:
        return result
    rounds = watcher.timeline.every(Declared, after=fault.at)
    told = [(round(r.at - fault.at, 3), f"{r.round} {r.reason}: {r.cause}") for r in rounds]
    return replace(result, fault=fault.text, rounds=told)


def _nothing_yet(scenario: Scenario) -> Result:
    return Result(scenario.name, when=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", fault="", figures=None)
