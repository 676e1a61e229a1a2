"""Measures lost pods side by side: jobs of this operator, and a tuned PyTorchJob of Kubeflow's.

One job after another runs the same script on the same kind cluster, and loses the same pods in
turns, or with --replay their nodes at fixed times. docs/evidence/benchmarks.md has the settings.
"""

import argparse
import asyncio
import os
import re
import sys
from functools import partial

from bench import trials
from bench.trials import TROUBLE, Trial
from measure.cluster import ELASTIC_PYTORCH_JOB, ClusterDriver
from measure.engine import NotUndone
from measure.kind_cluster import REPORTS, ROOT
from measure.program import (
    Session,
    add_trials,
    commit_of_checkout,
    complain,
    new_parser,
    run,
    say,
    session,
)

from kubeflow import report
from kubeflow.jobs import JOBS, KINDS, LOSSES, PYTORCH_JOB, SCRIPTS, STEP_SECONDS, Job
from kubeflow.replay import Share, replay
from kubeflow.stage import KubeflowStage

INSTALL = str(ROOT / "hack" / "kubeflow.sh")


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser("kubeflow", __doc__)
    add_trials(parser, KINDS, LOSSES, "the losses")
    replayed = "lose the nodes with the pods, once each, while a job trains on"
    parser.add_argument("--replay", action="store_true", help=replayed)
    options = parser.parse_args(arguments)
    if options.replay and not set(options.only) <= set(LOSSES):
        parser.error("a replay has losses only")
    return options


async def about(driver: ClusterDriver) -> dict[str, str]:
    settings = (ROOT / "hack" / "settings.sh").read_text()
    [version] = re.findall(r"^TRAINING_OPERATOR_VERSION=(\S+)", settings, re.MULTILINE)
    return {
        "commit": commit_of_checkout(),
        "training-operator": version,
        "Kubernetes": str((await driver.api.ask("GET", "/version"))["gitVersion"]),
        "steps of": f"{STEP_SECONDS:g} s",
        "cores": str(os.cpu_count()),
        "load average at the beginning": f"{os.getloadavg()[0]:.1f}",
    }


async def run_script(*arguments: str) -> int:
    process = await asyncio.create_subprocess_exec(INSTALL, *arguments, start_new_session=True)
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise


async def measure(options: argparse.Namespace) -> int:
    found, shares, told, status = list[Trial](), dict[str, Share](), dict[str, str](), 2
    kinds = [KINDS[name] for name in options.only]

    async def measure_job(made: Session, job: Job) -> None:
        say(f"{job.title}:")
        kind, driver = PYTORCH_JOB if job.kubeflow else ELASTIC_PYTORCH_JOB, made.driver
        driver = ClusterDriver(driver.api, driver.commands, driver.namespace, kind)
        stage = KubeflowStage(driver, made.folder, job)
        try:
            if options.replay:
                shares[job.name] = await replay(stage, kinds, say)
            else:
                ordered = [(kind, turn) for turn in range(options.trials) for kind in kinds]
                await trials.run(stage, job.name, ordered, found.append, say)
        finally:
            await stage.remove()
        if torch := next((line["torch"] for line in stage.record.lines() if "torch" in line), ""):
            told["torch"] = torch

    try:
        async with session("kubeflow", SCRIPTS, say) as made:
            made.stack.push_async_callback(run_script, "remove")
            if status := await run_script():
                raise RuntimeError(f"hack/kubeflow.sh has ended with {status}")
            told |= await about(made.driver)
            for job in JOBS.values():
                await measure_job(made, job)
        status = 0
    except (*TROUBLE, NotUndone) as trouble:
        say(f"FAILED: {type(trouble).__name__}: {trouble}")
    finally:
        if failed := complain(report.complaints(found)):
            say(f"What was seen of failed trials: {REPORTS.relative_to(ROOT)}")
        if found:
            say(report.table(found, told))
        if shares:
            say(report.shares_table(shares, told))
    return status or failed


def main() -> int:
    options = parse_options()
    return run(partial(measure, options), "trace" if options.replay else "bench-kubeflow")


if __name__ == "__main__":
    sys.exit(main())
