"""Shows what the operator is for: does to a job on the cluster what clusters do to jobs.

It kills a rank, loses a pod, and scales the job up and down, an example or a job of your own. It
exits with 0 if the job recovered from each act, and repeated no step at an announced change.
`make try` does the same without a cluster.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from elastic_pytorch_local.faults.acts import ActFailed, Acts
from elastic_pytorch_local.faults.cost import cost_table, repeated_on_purpose
from elastic_pytorch_local.faults.driver import Driver
from elastic_pytorch_local.faults.steps import steps_per_second
from elastic_pytorch_local.faults.watcher import Watcher, background
from elastic_pytorch_local.progress_lines import headline
from measure.api import Api
from measure.cluster import ClusterDriver
from measure.commands import Commands
from measure.engine import TROUBLE, Say
from measure.kind_cluster import KUBECONFIG, KUBECTL, OPERATORS, ROOT, example, read_example
from measure.program import new_parser, run, say

EXAMPLES = {
    "library": ROOT / "examples" / "char-lm" / "job-elastic.yaml",
    "plain": ROOT / "examples" / "char-lm" / "job.yaml",
    "lightning": ROOT / "examples" / "lightning" / "job.yaml",
}
STEPS = 100_000  # more than are trained before the last act is over
LINE_SECONDS = 3.0
WHERE_TO_LOOK = """The job is left as it is (the next demo removes it). Where to look:
  export KUBECONFIG=.cluster/kubeconfig PATH=$PWD/.cluster/bin:$PATH
  kubectl describe epj/{job}
  kubectl logs -l elasticpytorch.dev/job-name={job} --prefix --tail=30
  kubectl logs -n elastic-pytorch-system -l {operators} --prefix --tail=50"""


def parse_manifest(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = new_parser("demo", __doc__)
    add = parser.add_mutually_exclusive_group().add_argument
    trained = "what to train (default: %(default)s)"
    add("--example", choices=EXAMPLES, default="library", help=trained)
    own = "a manifest to train instead; a job of its name is deleted first"
    add("--job", type=own_job, help=own)
    options = parser.parse_args(arguments)
    return options.job or example(EXAMPLES[options.example], steps=STEPS)


def own_job(file: str) -> dict[str, Any]:
    try:
        return read_example(Path(file))
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise argparse.ArgumentTypeError(
            f"{file} does not hold one ElasticPyTorchJob, and nothing else: {error!r}"
        ) from None


async def show(driver: Driver, manifest: dict[str, Any]) -> int:
    """Plays the demo; returns the exit code: 3 if an announced change repeated steps."""
    job, began = manifest["metadata"]["name"], time.time()

    def tell(text: str) -> None:
        say(f"[{time.time() - began:5.0f} s] {text}")

    watcher = Watcher(driver, job)
    acts = Acts(driver, watcher, tell)
    failure = ""
    try:
        tell(f"removing what an earlier run may have left of {job}")
        await driver.delete_job(job)
        tell(f"kubectl apply of {job}")
        await driver.create_job(manifest)
        async with background(watcher.run(), _progress(watcher, tell)):
            await acts.perform()
    except asyncio.CancelledError:
        say(f"Deleting {job} and its pods ...")
        await driver.delete_job(job)
        raise
    except (ActFailed, *TROUBLE) as error:
        failure = str(error) or repr(error)
    if acts.costs:
        say(cost_table(acts.costs))
    if failure:
        say(f"FAILED. {failure}", style="bold red")
        say(WHERE_TO_LOOK.format(job=job, operators=OPERATORS))
        return 1
    await driver.delete_job(job)
    say(f"{job} is deleted.")
    return 3 if repeated_on_purpose(acts.costs) else 0


async def _progress(watcher: Watcher, tell: Say) -> None:
    while True:
        await asyncio.sleep(LINE_SECONDS)
        tell(f"    {headline(watcher.job, watcher.progress, steps_per_second(watcher.log))}")


async def play(manifest: dict[str, Any]) -> int:
    async with Api.connect(KUBECONFIG) as api:
        driver = ClusterDriver(api, Commands(KUBECTL, KUBECONFIG), api.namespace)
        return await show(driver, manifest)


def main() -> int:
    return run(partial(play, parse_manifest()), "demo")


if __name__ == "__main__":
    sys.exit(main())
