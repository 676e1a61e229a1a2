"""Shows what the operator is for: trains an example, on a cluster or without one, and does to it what clusters do to jobs.

A worker's pod is killed, the job is scaled up and down, and it trains on to its end. It exits with 0 if the job is
Complete and every act was recovered from.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastic_pytorch_local.faults.driver import Driver
from elastic_pytorch_local.faults.engine import TROUBLE
from elastic_pytorch_local.faults.local_driver import LocalDriver
from elastic_pytorch_local.faults.watcher import Watcher, background
from measure.api import Api
from measure.cluster import ClusterDriver
from measure.commands import Commands
from measure.kind_cluster import KUBECONFIG, KUBECTL, ROOT, example
from measure.program import cancel_on_signals
from rich.console import Console

from demo.acts import ActFailed, Play
from demo.view import View, interruption_table, outcome, where_to_look

# The manifests, and the arguments with which their scripts print each step: the demo reads its times from the log.
EXAMPLES = {
    "char-lm": (ROOT / "examples" / "char-lm" / "job.yaml", ["--log-every", "1"]),
    "lightning": (ROOT / "examples" / "lightning" / "job.yaml", []),
}
EXAMPLE_PATHS = {"/examples": ROOT / "examples"}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hack/demo", description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="optimizer steps in all (default: %(default)s)")
    parser.add_argument("--local", action="store_true", help="without a cluster: each pod is a process of this machine")
    parser.add_argument("--example", choices=EXAMPLES, default="char-lm", help="what to train (default: %(default)s)")
    return parser.parse_args()


def read_manifest(steps: int, name: str = "char-lm") -> dict[str, Any]:
    """Returns an example's job with a number of steps, of which the script prints each."""
    file, arguments = EXAMPLES[name]
    manifest = example(file, steps=steps)
    manifest["spec"]["template"]["spec"]["containers"][0]["args"] += arguments
    return manifest


def local_manifest(steps: int) -> dict[str, Any]:
    """Returns the same job with a text that every system has."""
    manifest = read_manifest(steps)
    manifest["spec"]["template"]["spec"]["containers"][0]["args"] += ["--text", str(ROOT / "docs" / "use")]
    return manifest


async def show(
    driver: Driver,
    manifest: dict[str, Any],
    console: Console,
    *,
    help_with: Callable[[str], str] = where_to_look,
) -> int:
    """Plays the demo; returns the exit code.

    Args:
        help_with: returns where to look when the job of a name has not done what it is there to show.
    """
    job = manifest["metadata"]["name"]
    watcher = Watcher(driver, job)
    view = View(console, watcher, title=f"epj/{job}")
    play = Play(driver, watcher, view.note)
    made, failure = False, ""
    try:
        console.print(f"Removing what an earlier run may have left of {job} ...", highlight=False)
        await driver.delete_job(job)
        view.note(f"kubectl apply -f examples/{job}/job.yaml")
        asked_at, made = time.time(), True
        await driver.create_job(manifest)
        async with background(view.run(), watcher.run()):
            done = await play.perform(manifest["spec"]["replicas"])
    except asyncio.CancelledError:
        if made:
            console.print(f"Interrupted. Deleting {job} and its pods ...", highlight=False)
            await driver.delete_job(job)
            console.print("Gone.")
        raise
    except (ActFailed, *TROUBLE) as error:
        failure = str(error) or repr(error)
    if play.events:
        console.print(interruption_table(play.events))
    if failure:
        console.print(f"FAILED. {failure}", style="bold red", markup=False, highlight=False)
        console.print(help_with(job), markup=False, highlight=False, soft_wrap=True)
        return 1
    console.print(outcome(done, watcher.log, asked_at, watcher.job), highlight=False)
    await driver.delete_job(job)
    console.print(f"{job} is deleted.", highlight=False)
    return 0


async def show_locally(steps: int, console: Console) -> int:
    console.print(
        "No cluster: each pod is a process of this machine, and the commands are those for a cluster.", highlight=False
    )
    with tempfile.TemporaryDirectory(prefix="elastic-pytorch-") as workdir:
        async with LocalDriver.started(Path(workdir), EXAMPLE_PATHS) as driver:
            manifest = local_manifest(steps)
            with driver.page() as url:
                console.print(f"Its page, until the training is over: {url}", soft_wrap=True, highlight=False, markup=False)
                return await show(driver, manifest, console, help_with=lambda _: driver.last_words())


async def main() -> int:
    options = parse_options()
    console = Console()
    cancel_on_signals()
    if options.local:
        return await show_locally(options.steps, console)
    if not (KUBECONFIG.exists() and KUBECTL.exists()):
        console.print("There is no cluster here yet: `make demo` makes one, with the operator in it.", highlight=False)
        return 2
    async with Api.connect(KUBECONFIG) as api:
        driver = ClusterDriver(api, Commands(KUBECTL, KUBECONFIG), api.namespace)
        return await show(driver, read_manifest(options.steps, options.example), console)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except asyncio.CancelledError:
        sys.exit(130)
