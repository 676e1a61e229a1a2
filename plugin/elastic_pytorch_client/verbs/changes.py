"""The verbs that change a job: `kubectl epj suspend`, `resume`, `restart` and `resize`."""

import argparse
from functools import partial

from elastic_pytorch_client.errors import EpjError, NoSuchJob, Refused
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.verbs.context import Context, Verb, add_name
from elastic_pytorch_client.watch import trains_whole

WAIT_SECONDS = 300.0
ALL_TRAINED = "all wanted workers trained"


def _add_arguments(parser: argparse.ArgumentParser, until: str, limits: str = "--wait") -> None:
    add_name(parser)
    parser.add_argument("--wait", action="store_true", help=f"wait until {until}")
    parser.add_argument(
        "--timeout",
        type=float,
        default=WAIT_SECONDS,
        metavar="SECONDS",
        help=f"limit of {limits} (default: 300)",
    )


def _suspend(context: Context, options: argparse.Namespace) -> int:
    _set_suspended(context, options.name, True)
    context.console.print(f"{options.name}: its workers save and stop")
    if options.wait:
        context.wait(options.name, has_stopped, "all its workers had stopped", options.timeout)
        context.console.print(f"{options.name}: no worker runs any more")
    return 0


def _resume(context: Context, options: argparse.Namespace) -> int:
    _set_suspended(context, options.name, False)
    context.console.print(f"{options.name}: resumed; its workers start")
    return _wait_for_training(context, options, ALL_TRAINED)


def _restart(context: Context, options: argparse.Namespace) -> int:
    """Stops the workers and starts them again, even if the wait in between is given up."""
    name = options.name
    job = context.job(name)
    if job.ended:
        raise Refused(
            f"{name} has ended ({job.state}), and stays so: to run it again, "
            f"`kubectl get epj {name} -o yaml > {name}.yaml`, `kubectl delete epj {name}` and "
            f"`kubectl create -f {name}.yaml`"
        )
    if job.suspended:
        raise Refused(f"{name} is suspended: `kubectl epj resume {name}` starts its workers")
    _set_suspended(context, name, True)
    context.console.print(f"{name}: its workers save and stop")
    try:
        context.wait(name, has_stopped, "all its workers had stopped", options.timeout)
    finally:
        try:
            _set_suspended(context, name, False)
        except NoSuchJob:  # the wait has said so
            pass
        except EpjError as error:
            stays = f"{name} stays suspended: `kubectl epj resume {name}`"
            raise EpjError(f"{error}; {stays}") from error
    context.console.print(f"{name}: its workers start again")
    return _wait_for_training(context, options, ALL_TRAINED)


def _set_suspended(context: Context, name: str, suspended: bool) -> None:
    context.cluster.patch_job(context.one_namespace, name, {"spec": {"suspend": suspended}})


def _wait_for_training(context: Context, options: argparse.Namespace, what: str) -> int:
    if options.wait:
        job = context.wait(options.name, trains_whole, what, options.timeout)
        context.console.print(f"{options.name}: {job.size} workers train in round {job.round}")
    return 0


def has_stopped(job: JobView) -> bool:
    """Whether the operator has seen the suspension, and no pod is left."""
    return job.seen and job.holds("Suspended")


def _add_resize_arguments(parser: argparse.ArgumentParser) -> None:
    _add_arguments(parser, "all N workers train")
    parser.add_argument(
        "replicas",
        metavar="N",
        type=int,
        help="the number of workers, from minReplicas to maxReplicas",
    )


def _resize(context: Context, options: argparse.Namespace) -> int:
    before = context.job(options.name)
    context.cluster.scale_job(context.one_namespace, options.name, options.replicas)
    said = f"{options.name}: {before.wanted} -> {options.replicas} workers wanted"
    context.console.print(said)
    return _wait_for_training(context, options, f"all {options.replicas} workers trained")


VERBS = (
    Verb(
        "resize",
        "change the number of workers",
        _add_resize_arguments,
        _resize,
        examples=("char-lm 4", "char-lm 2 --wait --timeout 120"),
    ),
    Verb(
        "suspend",
        "let a job's workers save and stop; the job stays",
        partial(_add_arguments, until="no worker runs"),
        _suspend,
        examples=("char-lm", "char-lm --wait"),
    ),
    Verb(
        "resume",
        "resume a suspended job from its checkpoint",
        partial(_add_arguments, until="all wanted workers train"),
        _resume,
        examples=("char-lm", "char-lm --wait"),
    ),
    Verb(
        "restart",
        "stop all workers of a job and start them again from its checkpoint",
        partial(
            _add_arguments,
            until="all wanted workers train again",
            limits="the wait for the workers' end, and of --wait",
        ),
        _restart,
        examples=("char-lm", "char-lm --wait"),
    ),
)
