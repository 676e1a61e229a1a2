"""Measures on a running cluster how long the operator's promises take: faults are made to a job, again and again.

It needs a cluster with the operator on it (`make bench` makes both). The job is examples/all-reduce, plain torchrun code with steps
of 0.1 s, in a namespace of its own that is removed at the end; with --library a script that uses the training library. The kinds whose
names end in -handler are made to the same script with a handler of SIGTERM, which the one of the training library has no need of.
"""

import argparse
import asyncio
import os
import signal
import sys
from itertools import groupby, product
from pathlib import Path

from measure.api import Api, remove_namespace
from measure.command_line import names_of, new_console
from measure.commands import Commands
from measure.kind_cluster import FILES, KUBECONFIG, KUBECTL, ROOT
from measure.watcher import Watcher, background
from rich.console import Console

from bench import picture, results, trials
from bench.report import complaints, main_table, phase_table
from bench.results import Result
from bench.scenarios import PLAIN, SCENARIOS, Scenario
from bench.stage import SetUp, Stage, read_job

EXAMPLE = ROOT / "examples" / "all-reduce"
NAMESPACE_SECONDS = 60.0


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="hack/bench", description=__doc__, formatter_class=formatter)
    parser.add_argument("--trials", type=int, default=5, help="of each kind (default: %(default)s)")
    kinds = f"of {', '.join(SCENARIOS)}"
    parser.add_argument("--only", metavar="a,b", type=names_of(SCENARIOS, "kind"), default=list(SCENARIOS), help=kinds)
    parser.add_argument("--keep", action="store_true", help="keep the earlier results of the kinds that are not measured now")
    parser.add_argument(
        "--library", action="store_true", help="of a script that uses the training library, and keeps its processes"
    )
    parser.add_argument(
        "--set-up-seconds", type=float, default=0.0, help="with --library: what the script takes until it can train"
    )
    parser.add_argument(
        "--prepare", action="store_true", help="with --library: workers do that before they join (spec.prepare)"
    )
    parser.add_argument(
        "--spares", type=int, default=0, help="with --library: workers that wait, ready, for a loss (spec.spares)"
    )
    parser.add_argument("--report", action="store_true", help="only show the earlier results again")
    options = parser.parse_args(arguments)
    if not options.library and (options.set_up_seconds or options.prepare or options.spares):
        parser.error("a set-up and spares are measured with --library")
    if options.library:
        options.only = [name for name in options.only if name in PLAIN]
    return options


def _kind(options: argparse.Namespace) -> str:
    """Names the results: by the script, and by what it does before its first step."""
    if options.prepare or options.spares:
        return "prepared"
    if options.set_up_seconds:
        return "set-up"
    return "library" if options.library else "plain"


def in_order(names: list[str], turns: int) -> list[tuple[Scenario, int]]:
    """Returns all trials: kind by kind, but scaling up and down in turns, as one undoes the other; those with a handler last."""
    names = sorted(names, key=lambda name: name not in PLAIN)
    kinds = groupby(names, key=lambda name: name.removesuffix("-up").removesuffix("-down"))
    return [(SCENARIOS[name], turn) for _, kind in kinds for turn, name in product(range(turns), kind)]


async def measure(console: Console, options: argparse.Namespace, file: Path) -> list[Result]:
    """Makes the trials; their results are on disk as soon as they are known."""
    found = [r for r in results.read(file) if r.scenario not in options.only] if options.keep else []

    def keep(result: Result) -> None:
        found.append(result)
        results.write(file, found)

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    set_up = SetUp(options.set_up_seconds, options.prepare, options.spares)
    manifest = EXAMPLE / ("elastic.yaml" if options.library else "job.yaml")
    namespace = f"bench-{os.urandom(2).hex()}"
    async with Api.connect(KUBECONFIG) as api:
        await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        say(f"Measuring in namespace {namespace}:")
        watcher = Watcher(api, namespace, read_job(manifest, handler=False)["metadata"]["name"])
        stage = Stage(api, Commands(KUBECTL, KUBECONFIG), watcher, manifest, set_up)
        try:
            async with background(watcher.run(operators=True)):
                await trials.run(stage, in_order(options.only, options.trials), keep, say)
        except asyncio.CancelledError:
            say("Interrupted.")
        finally:
            await remove_namespace(api, namespace, NAMESPACE_SECONDS)
        if watcher.broken:
            raise RuntimeError("the watching of the job has ended early") from watcher.broken
    return found


async def main() -> int:
    options = parse_options()
    console = new_console()
    if not options.report and not KUBECONFIG.exists():
        console.print("There is no cluster here yet: `make bench` makes one, with the operator in it.", highlight=False)
        return 2
    task = asyncio.current_task()
    assert task is not None

    def interrupt() -> None:
        if not task.cancelling():  # a second time would break off the cleaning up
            console.print("Interrupted: bringing the nodes back, and removing the job ...", highlight=False)
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    kind = _kind(options)
    file, drawing = FILES / "bench" / f"{kind}.json", FILES / "bench" / f"{kind}.png"
    found = results.read(file) if options.report else await measure(console, options, file)
    if found:
        console.print(main_table(found))
        console.print(phase_table(found))
        picture.draw(found, drawing)
        console.print(f"{file.relative_to(ROOT)}  {drawing.relative_to(ROOT)}", highlight=False)
    said = complaints(found)
    for complaint in said:
        console.print(complaint, style="red", markup=False, highlight=False)
    return 130 if task.cancelling() else 1 if said else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
