"""Shows what the operator is for: trains an example, or a job of your own, on the cluster, and does to it what clusters do to jobs.

A rank is killed, a pod is lost, and the job is scaled up and down. It exits with 0 if each was recovered from, and no step
was repeated at a change that was announced; `make try` does the same without a cluster.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from elastic_pytorch_local.faults.acts import ActFailed, Acts
from elastic_pytorch_local.faults.cost import cost_table, repeated_on_purpose
from elastic_pytorch_local.faults.driver import Driver
from elastic_pytorch_local.faults.engine import TROUBLE
from elastic_pytorch_local.faults.watcher import Watcher, background
from measure.api import Api
from measure.cluster import ClusterDriver
from measure.commands import Commands
from measure.kind_cluster import KUBECONFIG, KUBECTL, ROOT, example, read_example
from measure.program import cancel_on_signals
from rich.console import Console

from demo.view import View, where_to_look

EXAMPLES = {
    "library": ROOT / "examples" / "char-lm" / "job-elastic.yaml",
    "plain": ROOT / "examples" / "char-lm" / "job.yaml",
    "lightning": ROOT / "examples" / "lightning" / "job.yaml",
}
STEPS = 100_000  # more than are trained before the last act is over


def parse_manifest(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the manifest of the job to train."""
    parser = argparse.ArgumentParser(prog="hack/demo", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--example", choices=EXAMPLES, default="library", help="what to train (default: %(default)s)")
    what.add_argument("--job", type=own_job, help="a manifest to train instead; a job of its name is deleted first")
    options = parser.parse_args(arguments)
    return options.job or example(EXAMPLES[options.example], steps=STEPS)


def own_job(file: str) -> dict[str, Any]:
    try:
        return read_example(Path(file))
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{file} does not hold one ElasticPyTorchJob, and nothing else: {error!r}") from None


async def show(driver: Driver, manifest: dict[str, Any], console: Console) -> int:
    """Plays the demo; returns the exit code: 3 if steps were repeated at a change that was announced."""
    job = manifest["metadata"]["name"]
    watcher = Watcher(driver, job)
    view = View(console, watcher, title=f"epj/{job}")
    acts = Acts(driver, watcher, view.note)
    made, failure = False, ""
    try:
        console.print(f"Removing what an earlier run may have left of {job} ...", highlight=False)
        await driver.delete_job(job)
        view.note(f"kubectl apply of {job}")
        made = True
        await driver.create_job(manifest)
        async with background(view.run(), watcher.run()):
            await acts.perform()
    except asyncio.CancelledError:
        if made:
            console.print(f"Interrupted. Deleting {job} and its pods ...", highlight=False)
            await driver.delete_job(job)
            console.print("Gone.")
        raise
    except (ActFailed, *TROUBLE) as error:
        failure = str(error) or repr(error)
    if acts.costs:
        console.print(cost_table(acts.costs), markup=False, highlight=False, soft_wrap=True)
    if failure:
        console.print(f"FAILED. {failure}", style="bold red", markup=False, highlight=False)
        console.print(where_to_look(job), markup=False, highlight=False, soft_wrap=True)
        return 1
    await driver.delete_job(job)
    console.print(f"{job} is deleted.", highlight=False)
    return 3 if repeated_on_purpose(acts.costs) else 0


async def main() -> int:
    manifest = parse_manifest()
    console = Console()
    cancel_on_signals()
    if not (KUBECONFIG.exists() and KUBECTL.exists()):
        console.print("There is no cluster here yet: `make demo` makes one, with the operator in it.", highlight=False)
        return 2
    async with Api.connect(KUBECONFIG) as api:
        driver = ClusterDriver(api, Commands(KUBECTL, KUBECONFIG), api.namespace)
        return await show(driver, manifest, console)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except asyncio.CancelledError:
        sys.exit(130)
