"""`kubectl epj drill NAME`: disturbs a running job on purpose, and shows what each fault costs it."""

import argparse
import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any

from elastic_pytorch_client.drill.exercise import Exercise
from elastic_pytorch_client.drill.faults import Fault, PlannedFault, plan_faults, refusal
from elastic_pytorch_client.drill.outcome import Outcome, drill_json, recovered
from elastic_pytorch_client.drill.permissions import check
from elastic_pytorch_client.errors import EpjError
from elastic_pytorch_client.reading.job_view import view_job
from elastic_pytorch_client.reading.last_drill import ANNOTATION, write_drill
from elastic_pytorch_client.verbs.context import WAIT_SECONDS, Context, add_name, add_output, print_data
from elastic_pytorch_client.views.drill_view import show_outcomes, show_plan

NAME, HELP = "drill", "disturb a running job on purpose: what each fault costs it, and what to set"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add_name(parser)
    parser.add_argument("--yes", action="store_true", help="run the drill; without this flag, only print the plan")
    parser.add_argument(
        "--only",
        action="append",
        type=Fault,
        choices=list(Fault),
        metavar="FAULT",
        help=f"only this fault, which may be given several times: {', '.join(Fault)} (default: all of them)",
    )
    add_output(parser)
    parser.add_argument(
        "--timeout",
        type=float,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help="limit of the wait after each fault (default: 300)",
    )


def run(context: Context, options: argparse.Namespace) -> int:
    """Says what would be done; with --yes, does it."""
    namespace, name, cluster = context.one_namespace, options.name, context.cluster
    manifest = cluster.get_job(namespace, name)
    job = view_job(manifest)
    if reason := refusal(job):
        raise EpjError(f"no drill: {reason}")
    chosen = options.only or list(Fault)
    planned = check(cluster, namespace, name, plan_faults(manifest, cluster.list_pods(namespace, name), chosen))
    plain = options.output is None
    if plain:
        context.console.print(show_plan(job, planned))
    possible = [fault for fault in planned if not fault.skipped]
    missing = [fault for fault in planned if fault.skipped] if options.only else []
    if not options.yes or not possible or missing:
        if not plain:
            print_data(context, options.output, drill_json(namespace, name, planned, None))
        if missing:
            raise EpjError(f"{missing[0].fault} is not possible: {missing[0].skipped}")
        if not possible:
            raise EpjError(f"none of the faults is possible for {name}")
        if plain:
            context.console.print(
                f"\nNothing was done. To do it: kubectl epj drill -n {namespace} {name} --yes", highlight=False
            )
        return 0
    outcomes = _exercise(context, options, planned)
    found = drill_json(namespace, name, planned, outcomes)
    if plain:
        context.console.print(show_outcomes(planned, outcomes))
    else:
        print_data(context, options.output, found)
    if (reason := _keep(context, name, found)) and plain:
        context.console.print(f"The page of kubectl epj ui will not show this drill: {reason}", highlight=False, markup=False)
    return 0 if recovered(outcomes) else 1


def _keep(context: Context, job: str, found: Mapping[str, Any]) -> str:
    """Leaves what a drill has shown in an annotation of its job; returns why not, if that cannot be done."""
    written = write_drill(found, context.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    try:
        context.cluster.patch_job(context.one_namespace, job, {"metadata": {"annotations": {ANNOTATION: written}}})
    except EpjError as error:
        return str(error)
    return ""


def _exercise(context: Context, options: argparse.Namespace, planned: list[PlannedFault]) -> list[Outcome]:
    began = context.clock.monotonic()

    def say(words: str) -> None:
        if options.output is None:
            context.console.print(f"{context.clock.monotonic() - began:6.1f} s  {words}", highlight=False, markup=False)

    exercise = Exercise(
        context.cluster, context.one_namespace, options.name, options.timeout, say, context.clock, _without_interrupts
    )
    with _terminated_as_interrupted():
        return list(exercise.run(planned))


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ignores Ctrl-C meanwhile: an undo takes a request or two."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Has SIGTERM end the drill as Ctrl-C does: what it has changed is undone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
