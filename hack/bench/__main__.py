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
from itertools import groupby
from pathlib import Path

import bench
import figure
import results
import yaml
from api import Api, ApiError
from commands import Commands
from report import complaints, main_table, phase_table
from results import Result
from rich.console import Console
from scenarios import PLAIN, SCENARIOS, Scenario
from stage import Stage, prepared
from watcher import Watcher

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "all-reduce"
CLUSTER = ROOT / ".cluster"
NAMESPACE_SECONDS = 60.0


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hack/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5, help="of each kind (default: %(default)s)")
    parser.add_argument("--only", metavar="a,b", type=_names, default=list(SCENARIOS), help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--keep", action="store_true", help="keep the earlier results of the kinds that are not measured now")
    parser.add_argument(
        "--library", action="store_true", help="of a script that uses the training library, and keeps its processes"
    )
    parser.add_argument("--report", action="store_true", help="only show the earlier results again")
    options = parser.parse_args(arguments)
    if options.library:
        options.only = [name for name in options.only if name in PLAIN]
    return options


def _names(text: str) -> list[str]:
    if unknown := [name for name in text.split(",") if name not in SCENARIOS]:
        raise argparse.ArgumentTypeError(f"no such kind: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    return [name for name in SCENARIOS if name in text.split(",")]


def in_order(names: list[str], trials: int) -> list[tuple[Scenario, int]]:
    """All trials: kind by kind, but scaling up and down in turns, as one undoes the other; those of the script with a handler last."""
    names = sorted(names, key=lambda name: name not in PLAIN)
    ordered = []
    for kind, _ in groupby(names, key=lambda name: name.removesuffix("-up").removesuffix("-down")):
        together = [name for name in names if name.removesuffix("-up").removesuffix("-down") == kind]
        ordered += [(SCENARIOS[name], turn) for turn in range(trials) for name in together]
    return ordered


async def measure(console: Console, options: argparse.Namespace, file: Path) -> list[Result]:
    """Make the trials; their results are on disk as soon as they are known."""
    kept = [r for r in results.read(file) if r.scenario not in options.only] if options.keep else []
    new: list[Result] = []

    def keep(result: Result) -> None:
        new.append(result)
        results.write(file, kept + new)

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    kubeconfig = CLUSTER / "kubeconfig"
    manifest = prepared(yaml.safe_load((EXAMPLE / ("elastic.yaml" if options.library else "job.yaml")).read_text()))
    namespace = f"bench-{os.urandom(2).hex()}"
    async with Api.of(kubeconfig.read_text()) as api:
        await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        say(f"Measuring in namespace {namespace}:")
        watcher = Watcher(api, namespace, manifest["metadata"]["name"])
        watching = asyncio.create_task(watcher.run())
        try:
            stage = Stage(api, Commands(CLUSTER / "bin" / "kubectl", kubeconfig), watcher, namespace, manifest)
            await bench.run(stage, in_order(options.only, options.trials), keep, say)
        except asyncio.CancelledError:
            say("Interrupted.")
        finally:
            watching.cancel()
            [ended] = await asyncio.gather(watching, return_exceptions=True)
            await remove(api, namespace)
        if not isinstance(ended, asyncio.CancelledError):
            raise RuntimeError("the watching of the job has ended early") from ended
    return kept + new


async def remove(api: Api, namespace: str) -> None:
    """Delete the namespace, and wait until it is gone."""
    path = f"/api/v1/namespaces/{namespace}"
    try:
        await api.ask("DELETE", path)
        async with asyncio.timeout(NAMESPACE_SECONDS):
            while True:
                await api.ask("GET", path)
                await asyncio.sleep(0.5)
    except ApiError as error:
        if error.status != 404:
            raise


async def main() -> int:
    options = parse_options()
    console = Console(width=None if sys.stdout.isatty() else 160)
    if not options.report and not (CLUSTER / "kubeconfig").exists():
        console.print("There is no cluster here yet: `make bench` makes one, with the operator in it.", highlight=False)
        return 2
    task = asyncio.current_task()
    assert task is not None
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if not interrupted:  # a second time would break off the cleaning up
            interrupted = True
            console.print("Interrupted: bringing the nodes back, and removing the job ...", highlight=False)
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    kind = "library" if options.library else "plain"
    file, picture = CLUSTER / "bench" / f"{kind}.json", CLUSTER / "bench" / f"{kind}.png"
    found = results.read(file) if options.report else await measure(console, options, file)
    if found:
        console.print(main_table(found))
        console.print(phase_table(found))
        figure.draw(found, picture)
        console.print(f"{file.relative_to(ROOT)}  {picture.relative_to(ROOT)}", highlight=False)
    said = complaints(found)
    for complaint in said:
        console.print(complaint, style="red", markup=False, highlight=False)
    return 130 if interrupted else 1 if said else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
