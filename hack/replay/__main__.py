"""Replays losses and reclaimed nodes to one training in several jobs on the kind cluster, and says what share of the time each trains.

The same events come at the same times to each job, one job after another. Times that can be shortened are: set-ups, checkpoints' intervals
and the time between events. docs/evidence/benchmarks.md says how what was measured becomes the ratio at the real rate.
"""

import argparse
import asyncio
import shutil
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack

from measure.api import Api, remove_namespace
from measure.command_line import names_of, new_console
from measure.commands import Commands
from measure.kind_cluster import CONTROL_PLANE, FILES, KUBECONFIG, KUBECTL, ROOT
from measure.recorded_job import make_folder, remove_folder, scripts

from replay import picture, report, run
from replay.jobs import JOBS, SCRIPTS
from replay.player import TROUBLE, Player
from replay.traces import TRACES

FOLDER = FILES / "trace"
PAGE, DRAWING = ROOT / "docs" / "evidence" / "benchmarks.md", ROOT / "docs" / "evidence" / "trace.svg"
NAMESPACE_SECONDS = 60.0
CAPTION = "![The effective training time ratio of each job, as bars: the first column of the tables below.](trace.svg)"
console = new_console()


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="hack/replay", description=__doc__, formatter_class=formatter)
    parser.add_argument("--minutes", type=float, default=1.75, help="of each trace, for each job (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the traces (default: %(default)s)")
    parser.add_argument("--only", metavar="a,b", type=names_of(JOBS), default=list(JOBS), help=f"of {', '.join(JOBS)}")
    parser.add_argument("--traces", metavar="a,b", type=names_of(TRACES), default=list(TRACES), help=f"of {', '.join(TRACES)}")
    parser.add_argument("--report", action="store_true", help="only show the earlier results again")
    parser.add_argument("--docs", action="store_true", help="only write the earlier results into docs/evidence/benchmarks.md")
    return parser.parse_args(arguments)


def say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def commit_of_checkout() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def measure(options: argparse.Namespace, commit: str) -> None:
    """Replays the traces; the results of each job are on disk as soon as they are known."""
    namespace, commands = f"trace-{int(time.time()) & 0xFFFFFF:06x}", Commands(KUBECTL, KUBECONFIG)
    async with Api.connect(KUBECONFIG) as api, AsyncExitStack() as stack:
        found = [node["metadata"]["name"] for node in (await api.ask("GET", "/api/v1/nodes"))["items"]]
        folder = await make_folder(commands, namespace)
        stack.push_async_callback(remove_folder, commands, namespace)
        await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        stack.push_async_callback(remove_namespace, api, namespace, NAMESPACE_SECONDS)
        await api.ask("POST", f"/api/v1/namespaces/{namespace}/configmaps", scripts(SCRIPTS))
        player = Player(api, commands, folder, sorted(node for node in found if node != CONTROL_PLANE), say)
        await player.heal()  # an earlier run may have been killed
        for trace in (TRACES[name] for name in options.traces):
            for job in (JOBS[name] for name in options.only):
                say(f"{trace.name}, {job.name}:")
                seconds = 60 * options.minutes
                seen = await player.play(trace, job, seed=options.seed, seconds=seconds, commit=commit)
                run.write(FOLDER, seen)
                say(f"  {report.describe(seen)}")
                shutil.rmtree(folder / job.name, ignore_errors=True)


def show() -> int:
    """Prints the tables, and draws the picture, of all results that there are; returns 1 if something is not as it should be."""
    kept = run.read_all(FOLDER)
    console.print(report.tables(kept), markup=False, highlight=False, soft_wrap=True)
    picture.draw(kept, FOLDER / "trace.svg")
    said = report.complaints(kept)
    for complaint in said:
        console.print(complaint, style="red", markup=False, highlight=False, soft_wrap=True)
    say(f"{FOLDER.relative_to(ROOT)}/*.json  {FOLDER.relative_to(ROOT)}/trace.svg")
    return 1 if said else 0


async def main() -> int:
    options = parse_options()
    if options.docs:
        kept = run.read_all(FOLDER)
        picture.draw(kept, DRAWING)
        PAGE.write_text(report.page(PAGE.read_text(), kept, CAPTION))
        return 0
    if options.report:
        return show()
    if not KUBECONFIG.exists():
        say("There is no cluster here yet: `make trace` makes one, with the operator in it.")
        return 2
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lambda: None if task.cancelling() else task.cancel())
    try:
        await measure(options, commit_of_checkout())
    except asyncio.CancelledError:
        say("Interrupted: all was removed.")
        return 130
    except TROUBLE as trouble:
        say(f"FAILED: {type(trouble).__name__}: {trouble}")
        show()
        return 2
    return show()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
