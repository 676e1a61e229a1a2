"""Measures lost pods side by side, in jobs of this operator and in a tuned PyTorchJob of Kubeflow's training-operator.

Each job runs the same script on the same kind cluster, one job after another, and loses the same pods in turns. hack/kubeflow.sh builds
the training-operator and installs it; it is removed at the end. docs/evidence/benchmarks.md says what is set and what is measured.
"""

import argparse
import asyncio
import os
import re
import sys
import time
from functools import partial
from typing import Any

from bench import trials
from bench.trials import TROUBLE, Trial
from measure.cluster import ELASTIC_PYTORCH_JOB, ClusterDriver
from measure.kind_cluster import FILES, ROOT
from measure.program import Session, commit_of_checkout, names_of, new_console, new_parser, run, session

from kubeflow import report
from kubeflow.jobs import JOBS, PYTORCH_JOB, SCRIPTS, STEP_SECONDS, USUAL
from kubeflow.losses import KINDS, LOSSES
from kubeflow.stage import LOGS, KubeflowStage

FILE = FILES / "bench-kubeflow.json"
INSTALL = str(ROOT / "hack" / "kubeflow.sh")
HOPELESS = 3  # trials in a row that have failed
console = new_console()


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser("kubeflow", __doc__)
    parser.add_argument("--trials", type=int, default=5, help="of each kind in each job (default: %(default)s)")
    kinds = f"of {', '.join(KINDS)} (default: the losses)"
    parser.add_argument("--only", metavar="a,b", type=names_of(KINDS, "kind"), default=LOSSES, help=kinds)
    jobs = f"of {', '.join(JOBS)} (default: {', '.join(USUAL)})"
    parser.add_argument("--jobs", metavar="a,b", type=names_of(JOBS, "job"), default=USUAL, help=jobs)
    parser.add_argument("--minutes", type=float, default=11.0, help="after which no trial begins (default: %(default)s)")
    parser.add_argument("--report", action="store_true", help="only show the earlier results again")
    return parser.parse_args(arguments)


def say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def training_operator() -> str:
    """The release that hack/kubeflow.sh installs."""
    [version] = re.findall(r"^TRAINING_OPERATOR_VERSION=(\S+)", (ROOT / "hack" / "settings.sh").read_text(), re.MULTILINE)
    return str(version)


async def about(driver: ClusterDriver) -> dict[str, str]:
    """What is measured with what, but for the torch of the image."""
    return {
        "commit": commit_of_checkout(),
        "training-operator": training_operator(),
        "Kubernetes": str((await driver.api.ask("GET", "/version"))["gitVersion"]),
        "steps of": f"{STEP_SECONDS:g} s",
        "cores": str(os.cpu_count()),
        "load average at the beginning": f"{os.getloadavg()[0]:.1f}",
    }


async def run_script(*arguments: str) -> int:
    """Runs hack/kubeflow.sh, whose output is shown; returns its exit status."""
    process = await asyncio.create_subprocess_exec(INSTALL, *arguments, start_new_session=True)
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise


async def measure(options: argparse.Namespace) -> int:
    """Makes the trials, of which each is on disk as soon as it is known; returns the exit status."""
    end = time.monotonic() + 60 * options.minutes
    FILE.unlink(missing_ok=True)
    try:
        async with session("kubeflow", SCRIPTS, say) as made:
            made.stack.push_async_callback(run_script, "remove")
            if status := await run_script():
                raise RuntimeError(f"hack/kubeflow.sh has ended with {status}")
            await _measure_jobs(options, made, end)
    except (*TROUBLE, OSError) as trouble:
        say(f"FAILED: {type(trouble).__name__}: {trouble}")
        return show() or 2 if FILE.exists() else 2
    return show()


async def _measure_jobs(options: argparse.Namespace, made: Session, end: float) -> None:
    found, told = list[Trial](), dict[str, Any](about=await about(made.driver), left_out="")

    def keep(trial: Trial) -> None:
        found.append(trial)
        trials.write(FILE, found, **told)

    missing = 0
    for job in (JOBS[name] for name in options.jobs):
        say(f"{job.title}:")
        kind = PYTORCH_JOB if job.kubeflow else ELASTIC_PYTORCH_JOB
        stage = KubeflowStage(
            ClusterDriver(made.driver.api, made.driver.commands, made.driver.namespace, kind), made.folder, job
        )
        ordered = [(KINDS[name], turn) for turn in range(options.trials) for name in options.only]
        try:
            missing += await trials.run(stage, job.name, ordered, keep, say, end=end, hopeless=HOPELESS)
        finally:
            await stage.remove()
        if torch := next((line["torch"] for line in stage.record.lines() if "torch" in line), ""):
            told["about"]["torch"] = torch
    if missing:
        why = f"{options.minutes:g} minutes were over, or three in a row had failed"
        told["left_out"] = f"{missing} trials were left out: {why}."
    trials.write(FILE, found, **told)


def show() -> int:
    """Prints what has failed, and the table last; returns 1 if a trial has failed or is missing."""
    found, told = trials.read(FILE)
    said = report.complaints(found)
    for complaint in said:
        console.print(complaint, style="red", markup=False, highlight=False, soft_wrap=True)
    if said:
        say(f"The logs of failed trials: {LOGS.relative_to(ROOT)}")
    say(f"{FILE.relative_to(ROOT)}\n")
    say(report.table(found, told["about"], told["left_out"]))
    return 1 if said or told["left_out"] else 0


def main() -> int:
    options = parse_options()
    return show() if options.report else run(partial(measure, options), "bench-kubeflow")


if __name__ == "__main__":
    sys.exit(main())
