"""Measures what many jobs and workers cost the operator, on the kind cluster with the operator on it (`make scale` makes both).

Fake nodes run the pods, and a load generator in the cluster speaks for their agents. A run creates jobs, waits until all train, is quiet
for a while, loses pods one by one, and kills the leader while more pods are lost. docs/scale.md says more.
"""

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import time
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from pathlib import Path

import aiohttp
from kubernetes import config
from kubernetes.client import CoreV1Api
from measure.api import Api, ApiError
from measure.commands import CommandFailed, Commands
from measure.kind_cluster import FILES, KUBECONFIG, KUBECTL, ROOT
from rich.console import Console

from scale import results
from scale.fake_nodes import PODS_PER_NODE, fake_nodes
from scale.machine import busiest, find_process
from scale.meter import Meter
from scale.observations import spread
from scale.results import Result
from scale.stage import Stage

FOLDER, PAGE, KEPT = FILES / "scale", ROOT / "docs" / "scale.md", ROOT / "docs" / "scale"
CURVE = ((1, 10), (10, 10), (100, 10), (1000, 10), (1, 100), (1, 1000), (1, 2000), (1, 4000))
CREATED_A_SECOND = 10  # fewer than that, and a run gives up
LOSS_SECONDS = 60.0
LOSS_PAUSE_SECONDS = 0.5
TAKEOVER_SECONDS = 120.0
SILENT_SECONDS = 40.0  # after a takeover: whatever is declared lost falsely is declared by then
TROUBLE = (TimeoutError, ApiError, CommandFailed, RuntimeError, OSError, aiohttp.ClientError)
console = Console(width=None if sys.stdout.isatty() else 160)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="hack/scale", description=__doc__, formatter_class=formatter)
    parser.add_argument("--jobs", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=10, help="of each job (default: %(default)s)")
    parser.add_argument("--curve", action="store_true", help=f"all of {', '.join(f'{j}x{w}' for j, w in CURVE)}")
    parser.add_argument("--quiet", type=float, default=60.0, metavar="SECONDS", help="without any event (default: %(default)s)")
    parser.add_argument(
        "--losses", type=int, default=20, help="pods that are lost, and again at the takeover (default: %(default)s)"
    )
    parser.add_argument(
        "--import-seconds", type=float, default=2.0, help="from a container's start to its agent's (default: %(default)s)"
    )
    parser.add_argument("--memory", default="", metavar="2Gi", help="the operator's memory limit meanwhile (default: its own)")
    parser.add_argument("--profile", action="store_true", help="of the leader by py-spy, while it is quiet; needs root")
    parser.add_argument(
        "--docs", action="store_true", help="only keep what was measured in docs/scale, and write the tables of docs/scale.md"
    )
    return parser.parse_args(arguments)


def say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


async def run(stage: Stage, options: argparse.Namespace, result: Result) -> None:
    """Measures one number of jobs and workers."""
    observed, meter, pods = stage.observed, Meter(stage), len(stage.jobs) * stage.workers
    result.phases = meter.phases
    await stage.leader()
    async with stage.set(options.import_seconds):
        begin = time.time()
        try:
            async with meter.phase("create"):
                await stage.create_jobs()
                say(f"  all jobs are created after {time.time() - begin:.1f} s")
                await stage.until(stage.whole, 60.0 + pods / CREATED_A_SECOND, "all jobs to train with all of their workers")
        finally:
            for what in ("created", "bound", "running"):
                if (at := observed.reached(what, pods)) is not None:
                    result.times[what] = round(at - begin, 2)
                    result.times[f"{what}_per_second"] = round(pods / (at - begin), 1)
            for name, size in (("first_round", 0), ("whole", stage.workers)):
                moments = [observed.first(job, size=size) for job in stage.jobs]
                result.spreads[name] = spread(at - begin for at in moments if at is not None)
            say(f"  {result.times}, {result.spreads}")
        async with meter.phase("quiet"):
            await asyncio.gather(asyncio.sleep(options.quiet), *([profile(stage, options)] if options.profile else []))
        say(f"  quiet: {meter.phases['quiet']}")
        async with meter.phase("losses"):
            result.spreads["loss"] = spread(await lose_workers(stage, options.losses, whole=True))
        say(f"  losses: {result.spreads['loss']}")
        await stage.until(stage.whole, LOSS_SECONDS, "the jobs to be whole again")
        async with meter.phase("takeover"):
            killed_at = await stage.kill_leader()
            lost = await lose_workers(stage, min(options.losses, len(stage.jobs)), whole=False)
            await stage.until(lambda: observed.heard.keys() >= set(stage.jobs), TAKEOVER_SECONDS, "agents to be answered again")
            result.spreads["takeover"] = spread(at - killed_at for at in observed.heard.values())
            result.spreads["takeover_loss"] = spread(lost)
        await asyncio.sleep(SILENT_SECONDS)
        if observed.broken:
            raise RuntimeError(f"the load generator has lost {len(observed.broken)} agents: {observed.broken[0]}")
        result.falsely_lost = observed.count("deleted") - stage.deleted
        say(f"  takeover: {result.spreads['takeover']}, {result.spreads['takeover_loss']}, falsely lost: {result.falsely_lost}")


async def lose_workers(stage: Stage, count: int, *, whole: bool) -> list[float]:
    """Deletes pods of one job after the other; returns the seconds until all others of the job were in a round without it.

    With `whole`, a job has all of its workers before. Else jobs are not to be used twice.
    """
    observed, deleted = stage.observed, dict[str, float]()
    lost: list[float] = []

    async def rounds() -> None:
        await stage.until(lambda: all(observed.first(job, after=at) for job, at in deleted.items()), TAKEOVER_SECONDS, "rounds")
        lost.extend((observed.first(job, after=at) or at) - at for job, at in deleted.items())
        deleted.clear()

    for turn, job in zip(range(count), cycle(random.sample(stage.jobs, len(stage.jobs))), strict=False):
        if job in deleted:
            await rounds()
        if whole:
            await stage.until(partial(observed.whole, job, stage.workers), LOSS_SECONDS, f"{job} to be whole")
        deleted[job] = await stage.lose_worker(job, turn)
        await asyncio.sleep(LOSS_PAUSE_SECONDS)
    await rounds()
    return lost


async def profile(stage: Stage, options: argparse.Namespace) -> None:
    """Samples the leader's Python stacks, and says where it is busy."""
    process = find_process(await stage.leader(), "elastic_pytorch_operator")
    file = FOLDER / f"{len(stage.jobs)}x{stage.workers}.stacks"
    spy = [
        str(Path(sys.executable).parent / "py-spy"),
        "record",
        "--pid",
        str(process),
        "--format",
        "raw",
        "--output",
        str(file),
    ]
    running = await asyncio.create_subprocess_exec(*spy, "--duration", f"{options.quiet:.0f}", "--nonblocking")
    if await running.wait():
        raise RuntimeError("py-spy has failed")
    for function, share in busiest(file.read_text().splitlines()):
        say(f"    {share:6.1%} {function}")


async def measure(options: argparse.Namespace, result: Result) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lambda: None if task.cancelling() else task.cancel())
    async with Api.connect(KUBECONFIG) as api:
        stage = Stage(api, Commands(KUBECTL, KUBECONFIG), result.jobs, result.workers)
        async with stage.memory(options.memory) as limit:
            result.memory_limit = limit
            try:
                await run(stage, options, result)
            except* TROUBLE as errors:
                result.error = "; ".join(f"{type(error).__name__}: {error}" for error in errors.exceptions)
                say(f"  FAILED: {result.error}")


def main() -> int:
    options = parse_options()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.docs:
        for path in FOLDER.glob("*x*.json"):
            shutil.copy(path, KEPT)
        PAGE.write_text(results.page(PAGE.read_text(), results.read_all(KEPT)))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    core = CoreV1Api(config.new_client_from_config(str(KUBECONFIG)))  # type: ignore[no-untyped-call]
    failed = False
    for jobs, workers in CURVE if options.curve else ((options.jobs, options.workers),):
        result = Result(jobs, workers, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        say(f"{jobs} jobs of {workers} workers, on {os.cpu_count()} cores:")
        try:
            with fake_nodes(core, -(-jobs * workers // PODS_PER_NODE) + 1):
                asyncio.run(measure(options, result))
        except (KeyboardInterrupt, asyncio.CancelledError):
            say("Interrupted: all was removed.")
            return 130
        finally:
            say(str(results.write(FOLDER, result).relative_to(ROOT)))
        failed |= bool(result.error)
    console.print(results.tables(results.read_all(FOLDER)), markup=False, highlight=False, soft_wrap=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
