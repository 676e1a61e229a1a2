"""Shows on a running cluster what the operator is for: trains char-lm, and does to it what clusters do to jobs.

A worker's pod is killed, the job is scaled up and down, and it trains on to its end. It exits with 0 if the job is
Complete and every act was recovered from.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from typing import Any

from elastic_pytorch_client import names
from measure.api import Api
from measure.commands import CommandFailed, Commands
from measure.kind_cluster import KUBECONFIG, KUBECTL, ROOT, example
from measure.records import Step
from measure.watcher import Watcher, background
from rich.console import Console

from demo.acts import ActFailed, Play
from demo.view import View, outcome, summary_table, where_to_look

MANIFEST = ROOT / "examples" / "char-lm" / "job.yaml"
INTERRUPTED_SECONDS = 3.0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hack/demo", description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="optimizer steps in all (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the finished job, to look at it")
    return parser.parse_args()


def read_manifest(steps: int) -> dict[str, Any]:
    """Returns the job with a number of steps, of which the script prints each: the demo reads its times from the log."""
    manifest = example(MANIFEST, steps=steps)
    manifest["spec"]["template"]["spec"]["containers"][0]["args"] += ["--log-every", "1"]
    return manifest


async def show(commands: Commands, api: Api, manifest: dict[str, Any], console: Console, *, keep: bool) -> int:
    job = manifest["metadata"]["name"]
    watcher = Watcher(api, api.namespace, job)
    view = View(console, watcher, title=f"epj/{job}")
    play = Play(commands, watcher, view.note)
    made, failure = False, ""
    try:
        console.print(f"Removing what an earlier run may have left of {job} ...", highlight=False)
        await delete(commands, job)
        view.note(f"kubectl apply -f {MANIFEST.relative_to(ROOT)}")
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
        console.print(summary_table(play.events))
    if failure:
        console.print(f"FAILED. {failure}", style="bold red", markup=False, highlight=False)
        console.print(where_to_look(job), markup=False, highlight=False, soft_wrap=True)
        return 1
    console.print(outcome(done, watcher.timeline.every(Step), asked_at), highlight=False)
    if not keep:
        await delete(commands, job)
        console.print(f"{job} is deleted (--keep leaves it).", highlight=False)
    return 0


async def delete(commands: Commands, job: str) -> None:
    """Deletes the job, if there is one, and returns once its pods are gone."""
    await commands.kubectl("delete", f"epj/{job}", "--ignore-not-found", "--cascade=foreground", "--timeout=90s")
    await commands.kubectl("wait", "pod", "-l", f"{names.LABEL_JOB_NAME}={job}", "--for=delete", "--timeout=90s")


async def main() -> int:
    options = parse_options()
    console = Console()
    if not (KUBECONFIG.exists() and KUBECTL.exists()):
        console.print("There is no cluster here yet: `make demo` makes one, with the operator in it.", highlight=False)
        return 2
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    commands = Commands(KUBECTL, KUBECONFIG, interrupted_seconds=INTERRUPTED_SECONDS)
    async with Api.connect(KUBECONFIG) as api:
        return await show(commands, api, read_manifest(options.steps), console, keep=options.keep)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except asyncio.CancelledError:
        sys.exit(130)
