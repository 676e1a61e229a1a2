"""Shows on a running cluster what the operator is for: trains char-lm, and does to it what clusters do to jobs.

A worker's pod is killed, the job is scaled up and down, and it trains on to its end. It exits with 0 if the job is
Complete and every act was recovered from.
"""

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from acts import Play, prepare
from kubectl import Kubectl, KubectlError
from observer import ActFailed, Observer
from rich.console import Console
from summary import outcome, summary_table, where_to_look
from view import View

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "examples" / "char-lm" / "job.yaml"
CLUSTER = ROOT / ".cluster"


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hack/demo", description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="optimizer steps in all (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="leave the finished job, to look at it")
    return parser.parse_args()


async def show(kubectl: Kubectl, manifest: dict[str, Any], console: Console, *, keep: bool) -> int:
    """Play the demo; return the exit status."""
    observer = Observer(kubectl)
    view = View(console, observer, title=f"epj/{kubectl.job}")
    play = Play(kubectl, observer, view.note)
    made = False
    failure = ""
    background: list[asyncio.Task[None]] = []
    try:
        console.print(f"Removing what an earlier run may have left of {kubectl.job} ...", highlight=False)
        await kubectl.delete_job()
        view.note(f"kubectl apply -f {MANIFEST.relative_to(ROOT)}")
        asked_at = time.time()
        made = True
        await kubectl.apply(manifest)
        background = [asyncio.create_task(view.run()), asyncio.create_task(observer.run())]
        done = await play.perform(manifest["spec"]["replicas"])
    except asyncio.CancelledError:
        await end(background)
        if made:
            console.print(f"Interrupted. Deleting {kubectl.job} and its pods ...", highlight=False)
            await kubectl.delete_job()
            console.print("Gone.")
        raise
    except (ActFailed, KubectlError) as error:
        failure = str(error)
    await end(background)

    if play.events:
        console.print(summary_table(play.events))
    if failure:
        console.print(f"FAILED. {failure}", style="bold red", markup=False, highlight=False)
        console.print(where_to_look(kubectl.job), markup=False, highlight=False, soft_wrap=True)
        return 1
    last = observer.timeline.last_step()
    assert last is not None
    assert play.training_began is not None
    text = outcome(done, training_began=play.training_began, final_loss=last.loss, asked_at=asked_at)
    console.print(text, highlight=False)
    if not keep:
        await kubectl.delete_job()
        console.print(f"{kubectl.job} is deleted (--keep leaves it).", highlight=False)
    return 0


async def end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


async def main() -> int:
    options = parse_options()
    console = Console()
    kubeconfig, binary = CLUSTER / "kubeconfig", CLUSTER / "bin" / "kubectl"
    if not (kubeconfig.exists() and binary.exists()):
        console.print("There is no cluster here yet: `make demo` makes one, with the operator in it.", highlight=False)
        return 2
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    manifest = prepare(yaml.safe_load(MANIFEST.read_text()), options.steps)
    return await show(Kubectl(binary, kubeconfig, manifest["metadata"]["name"]), manifest, console, keep=options.keep)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except asyncio.CancelledError:
        sys.exit(130)
