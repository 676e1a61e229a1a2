"""The phases of a run: create, be quiet, lose pods, kill the leader."""

import asyncio
import math
import os
import random
import time
from functools import partial
from itertools import cycle
from pathlib import Path

from elastic_pytorch_local.faults.watcher import until
from measure import figures
from measure.engine import Say

from scale.meter import Meter
from scale.results import Result
from scale.stage import Stage

CREATED_A_SECOND = 4  # with fewer, a run gives up
QUIET_SECONDS = 60.0
LOSSES = 20  # pods, and again at the takeover
LOSS_SECONDS = 60.0
LOSS_PAUSE_SECONDS = 0.5
TAKEOVER_SECONDS = 300.0
SETTLE_SECONDS = 300.0  # at most
SETTLE_LOOK_SECONDS = 10.0
SETTLED_CORES = 0.1  # by which two looks at a settled machine may differ
SILENT_SECONDS = 40.0  # after a takeover, within which the leader declares false losses
spread = partial(figures.spread, percent=95)


async def run(stage: Stage, result: Result, folder: Path, say: Say) -> None:
    observed, meter, pods = stage.observed, Meter(stage), len(stage.jobs) * stage.workers
    result.phases = meter.phases
    await stage.leader()
    ended_before = await stage.operator_ends()
    async with stage.set():
        begin = time.time()
        try:
            async with meter.phase("create"):
                await stage.create_jobs()
                say(f"  all jobs are created after {time.time() - begin:.1f} s")
                await until(
                    stage.whole,
                    seconds=60.0 + pods / CREATED_A_SECOND,
                    what="all jobs to train with all of their workers",
                )
        finally:
            await stage.save_logs(folder)
            result.operator_ends = await stage.operator_ends() - ended_before
            result.falsely_lost = observed.count("deleted")
            for what in ("created", "bound", "running"):
                if (at := observed.reached(what, pods)) is not None:
                    result.times[what] = round(at - begin, 2)
                    result.times[f"{what}_per_second"] = round(pods / (at - begin), 1)
            for name, size in (("first_round", 0), ("whole", stage.workers)):
                moments = [observed.first(job, size=size) for job in stage.jobs]
                result.spreads[name] = spread(at - begin for at in moments if at is not None)
            say(f"  {result.times}, {result.spreads}")
        async with meter.phase("settle"):
            await settle(say)
        async with meter.phase("quiet"):
            await asyncio.sleep(QUIET_SECONDS)
        async with meter.phase("losses"):
            result.spreads["loss"] = spread(await lose_workers(stage, LOSSES, whole=True))
        result.operator_ends = await stage.operator_ends() - ended_before
        say(f"  losses: {result.spreads['loss']}")
        await until(stage.whole, seconds=LOSS_SECONDS, what="the jobs to be whole again")
        await stage.save_logs(folder)
        async with meter.phase("takeover"):
            killed_at = await stage.kill_leader()
            lost = await lose_workers(stage, min(LOSSES, len(stage.jobs)), whole=False)
            await until(
                lambda: observed.heard.keys() >= set(stage.jobs),
                seconds=TAKEOVER_SECONDS,
                what="agents to be answered again",
            )
            result.spreads["takeover"] = spread(at - killed_at for at in observed.heard.values())
            result.spreads["takeover_loss"] = spread(lost)
        await asyncio.sleep(SILENT_SECONDS)
        await stage.save_logs(folder)
        if broken := observed.broken:
            raise RuntimeError(f"the load generator has lost {len(broken)} agents: {broken[0]}")
        result.falsely_lost = observed.count("deleted") - stage.deleted
        takeover, loss = result.spreads["takeover"], result.spreads["takeover_loss"]
        say(f"  takeover: {takeover}, {loss}, falsely lost: {result.falsely_lost}")
        what = "the jobs to be whole after the takeover"
        await until(stage.whole, seconds=LOSS_SECONDS, what=what)


async def settle(say: Say) -> None:
    """Waits until kwok and the controllers have caught up, so that the load stops falling."""
    began, before, used = time.monotonic(), busy_seconds(), math.inf
    while (left := SETTLE_SECONDS + began - time.monotonic()) > 0:
        await asyncio.sleep(SETTLE_LOOK_SECONDS)
        after, earlier = busy_seconds(), used
        used = (after - before) / SETTLE_LOOK_SECONDS
        if used > earlier - SETTLED_CORES:
            break
        before = after
    settled = "settled" if left > 0 else "not settled"
    say(f"  the machine has {settled} after {time.monotonic() - began:.0f} s")


def busy_seconds() -> float:
    """The busy seconds of all processors since the machine's start: neither idle nor in I/O."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:8]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


async def lose_workers(stage: Stage, count: int, *, whole: bool) -> list[float]:
    """Deletes pods of one job after another; returns the seconds until the others' next round.

    With `whole`, a job must have all of its workers before.
    """
    observed, deleted = stage.observed, dict[str, float]()
    lost: list[float] = []

    async def rounds() -> None:
        await until(
            lambda: all(observed.first(job, after=at) for job, at in deleted.items()),
            seconds=TAKEOVER_SECONDS,
            what="rounds",
        )
        lost.extend((observed.first(job, after=at) or at) - at for job, at in deleted.items())
        deleted.clear()

    jobs = cycle(random.sample(stage.jobs, len(stage.jobs)))
    for turn, job in zip(range(count), jobs, strict=False):
        if job in deleted:
            await rounds()
        if whole:
            ready = partial(observed.whole, job, stage.workers)
            await until(ready, seconds=LOSS_SECONDS, what=f"{job} to be whole")
        deleted[job] = await stage.lose_worker(job, turn)
        await asyncio.sleep(LOSS_PAUSE_SECONDS)
    await rounds()
    return lost
