"""Shows what the operator is for: trains an example, on a cluster or without one, and does to it what clusters do to jobs.

A worker's pod is killed, the job is scaled up and down, and it trains on to its end. It exits with 0 if the job is
Complete and every act was recovered from.
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.views.interruption_table import interruption_table
from measure.api import Api
from measure.commands import CommandFailed, Commands
from measure.kind_cluster import KUBECONFIG, KUBECTL, ROOT, example
from measure.watcher import Watcher, background
from rich.console import Console

from demo.acts import ActFailed, Play
from demo.local_cluster import LocalCluster
from demo.view import View, outcome, where_to_look

# The manifests, and the arguments with which their scripts print each step: the demo reads its times from the log.
EXAMPLES = {
    "char-lm": (ROOT / "examples" / "char-lm" / "job.yaml", ["--log-every", "1"]),
    "lightning": (ROOT / "examples" / "lightning" / "job.yaml", []),
}
INTERRUPTED_SECONDS = 3.0
DELETION_SECONDS = 600


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hack/demo", description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="optimizer steps in all (default: %(default)s)")
    parser.add_argument("--local", action="store_true", help="without a cluster: each pod is a process of this machine")
    parser.add_argument("--example", choices=EXAMPLES, default="char-lm", help="what to train (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the finished job, to look at it")
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
    commands: Commands,
    api: Api,
    manifest: dict[str, Any],
    console: Console,
    *,
    keep: bool,
    help_with: Callable[[str], str] = where_to_look,
) -> int:
    """Plays the demo; returns the exit code.

    Args:
        commands: kubectl, or what stands in for it.
        api: the API server, or what stands in for it.
        manifest: the job.
        console: where it is shown.
        keep: whether to leave the finished job.
        help_with: returns where to look when the job of a name has not done what it is there to show.
    """
    job = manifest["metadata"]["name"]
    watcher = Watcher(api, api.namespace, job)
    view = View(console, watcher, title=f"epj/{job}")
    play = Play(commands, watcher, view.note)
    made, failure = False, ""
    try:
        console.print(f"Removing what an earlier run may have left of {job} ...", highlight=False)
        await delete(commands, job)
        view.note(f"kubectl apply -f examples/{job}/job.yaml")
        asked_at, made = time.time(), True
        await commands.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        async with background(view.run(), watcher.run()):
            done = await play.perform(manifest["spec"]["replicas"])
    except asyncio.CancelledError:
        if made:
            console.print(f"Interrupted. Deleting {job} and its pods ...", highlight=False)
            await delete(commands, job)
            console.print("Gone.")
        raise
    except (ActFailed, CommandFailed) as error:
        failure = str(error)
    if play.events:
        console.print(interruption_table(play.events))
    if failure:
        console.print(f"FAILED. {failure}", style="bold red", markup=False, highlight=False)
        console.print(help_with(job), markup=False, highlight=False, soft_wrap=True)
        return 1
    console.print(outcome(done, watcher.timeline, asked_at, watcher.job), highlight=False)
    if not keep:
        await delete(commands, job)
        console.print(f"{job} is deleted.", highlight=False)
    return 0


async def delete(commands: Commands, job: str) -> None:
    """Deletes the job, if there is one, and returns once its pods are gone."""
    await commands.kubectl(
        "delete", f"epj/{job}", "--ignore-not-found", "--cascade=foreground", f"--timeout={DELETION_SECONDS}s"
    )
    await commands.kubectl(
        "wait", "pod", "-l", f"{names.LABEL_JOB_NAME}={job}", "--for=delete", f"--timeout={DELETION_SECONDS}s"
    )


async def show_locally(steps: int, console: Console) -> int:
    """Plays the demo without a cluster."""
    console.print(
        "No cluster: each pod is a process of this machine, and the commands are those for a cluster.", highlight=False
    )
    with tempfile.TemporaryDirectory(prefix="elastic-pytorch-") as workdir:
        async with LocalCluster.started(Path(workdir)) as cluster:
            manifest = local_manifest(steps)
            with cluster.page() as url:
                console.print(f"Its page, until the training is over: {url}", soft_wrap=True, highlight=False, markup=False)
                return await show(cluster, cluster, manifest, console, keep=False, help_with=lambda _: cluster.last_words())


async def main() -> int:
    options = parse_options()
    console = Console()
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    if options.local:
        return await show_locally(options.steps, console)
    if not (KUBECONFIG.exists() and KUBECTL.exists()):
        console.print("There is no cluster here yet: `make demo` makes one, with the operator in it.", highlight=False)
        return 2
    commands = Commands(KUBECTL, KUBECONFIG, interrupted_seconds=INTERRUPTED_SECONDS)
    async with Api.connect(KUBECONFIG) as api:
        return await show(commands, api, read_manifest(options.steps, options.example), console, keep=options.keep)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except asyncio.CancelledError:
        sys.exit(130)
