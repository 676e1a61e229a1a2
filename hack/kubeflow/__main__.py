"""Measures lost pods side by side, in jobs of this operator and in a tuned PyTorchJob of Kubeflow's training-operator.

Each job runs the same script on the same kind cluster, one job after another, and loses the same pods in turns. hack/kubeflow.sh builds
the training-operator and installs it; it is removed at the end. docs/evidence/benchmarks.md says what is set and what is measured.
"""

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from measure.api import Api, remove_namespace
from measure.command_line import names_of, new_console
from measure.commands import Commands
from measure.kind_cluster import FILES, KUBECONFIG, KUBECTL, ROOT
from measure.recorded_job import make_folder, remove_folder, scripts

from kubeflow import report, results
from kubeflow.jobs import JOBS, SCRIPTS, STEP_SECONDS, USUAL
from kubeflow.losses import KINDS, LOSSES
from kubeflow.results import Run, Trial
from kubeflow.stage import Stage
from kubeflow.trials import TROUBLE, Course

FILE, LOGS = FILES / "bench-kubeflow.json", FILES / "logs" / "bench-kubeflow"
NAMESPACE_SECONDS = 60.0
INSTALL = str(ROOT / "hack" / "kubeflow.sh")
console = new_console()


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="hack/kubeflow", description=__doc__, formatter_class=formatter)
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


def commit_of_checkout() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def about(api: Api) -> dict[str, str]:
    """What is measured with what, but for the torch of the image."""
    return {
        "commit": commit_of_checkout(),
        "training-operator": training_operator(),
        "Kubernetes": str((await api.ask("GET", "/version"))["gitVersion"]),
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


async def measure(options: argparse.Namespace) -> None:
    """Makes the trials; their results are on disk as soon as they are known."""
    end = time.monotonic() + 60 * options.minutes
    namespace, commands = f"kubeflow-{int(time.time()) & 0xFFFFFF:06x}", Commands(KUBECTL, KUBECONFIG)
    async with Api.connect(KUBECONFIG) as api, AsyncExitStack() as stack:
        stack.push_async_callback(run_script, "remove")
        if status := await run_script():
            raise RuntimeError(f"hack/kubeflow.sh has ended with {status}")
        folder = await make_folder(commands, namespace)
        stack.push_async_callback(remove_folder, commands, namespace)
        await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        stack.push_async_callback(remove_namespace, api, namespace, NAMESPACE_SECONDS)
        await api.ask("POST", f"/api/v1/namespaces/{namespace}/configmaps", scripts(SCRIPTS))
        say(f"Measuring in namespace {namespace}:")
        await _measure_jobs(options, api, commands, folder, end)


async def _measure_jobs(options: argparse.Namespace, api: Api, commands: Commands, folder: Path, end: float) -> None:
    made = list[Trial]()
    run = Run(await about(api), made)

    def keep(trial: Trial) -> None:
        made.append(trial)
        results.write(FILE, run)

    def keep_logs(name: str, text: str) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        (LOGS / f"{name}.txt").write_text(text)

    course = Course([KINDS[name] for name in options.only], options.trials, end, keep, keep_logs, say)
    missing = 0
    for job in (JOBS[name] for name in options.jobs):
        say(f"{job.title}:")
        stage = Stage(api, commands, folder, job)
        missing += await course.run(stage)
        if torch := stage.record.torch():
            run = replace(run, about={**run.about, "torch": torch})
    if missing:
        run = replace(
            run,
            left_out=f"{missing} trials were left out: {options.minutes:g} minutes were over, or three in a row had failed.",
        )
    results.write(FILE, run)


def show() -> int:
    """Prints what has failed, and the table last; returns 1 if a trial has failed or is missing."""
    run = results.read(FILE)
    said = report.complaints(run)
    for complaint in said:
        console.print(complaint, style="red", markup=False, highlight=False, soft_wrap=True)
    if said:
        say(f"The logs of failed trials: {LOGS.relative_to(ROOT)}")
    say(f"{FILE.relative_to(ROOT)}\n")
    say(report.table(run))
    return 1 if said or run.left_out else 0


async def main() -> int:
    options = parse_options()
    if options.report:
        return show()
    if not KUBECONFIG.exists():
        say("There is no cluster here yet: `make bench-kubeflow` makes one, with the operator in it.")
        return 2
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, lambda: None if task.cancelling() else task.cancel())
    FILE.unlink(missing_ok=True)
    try:
        await measure(options)
    except asyncio.CancelledError:
        say("Interrupted: all was removed.")
        return 130
    except (*TROUBLE, RuntimeError, OSError) as trouble:
        say(f"FAILED: {type(trouble).__name__}: {trouble}")
        return show() or 2 if FILE.exists() else 2
    return show()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
