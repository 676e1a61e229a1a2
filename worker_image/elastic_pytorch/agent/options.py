"""Torchrun's command line, without what the operator decides."""

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

import torch
from torch.distributed.run import get_args_parser

from elastic_pytorch.agent.rendezvous import BACKEND
from elastic_pytorch.agent.settings import SettingsError
from elastic_pytorch.log import logger
from elastic_pytorch.processes.run_script import MODULE, SCRIPT

MONITOR_SECONDS = 0.05

# By option: what decides, and what torchrun's own reading expects in its place, but nothing uses.
DECIDED = {
    "nnodes": ("spec.replicas, spec.minReplicas and spec.maxReplicas of the job", "1:1"),
    "node_rank": ("the operator, for each round", 0),
    "standalone": ("spec.replicas: 1 of the job", False),
    "rdzv_backend": ("spec.rendezvous.backend of the job", BACKEND),
    "rdzv_endpoint": ("spec.rendezvous of the job", "operator"),
    "rdzv_id": ("the job's UID", ""),
    "rdzv_conf": ("spec.rendezvous of the job", ""),
    "master_addr": ("the operator: rank 0's address of each round", ""),
    "master_port": ("spec.rendezvous.port of the job", 0),
    "local_addr": ("the operator: each pod's own address", None),
}
LAUNCHERS = ("python", "python3", "torchrun")  # the `args` of a job follow these
# Options of newer releases of torch, which the agent implements itself with any torch.
CARRIED_OUT = {"shutdown_timeout": int, "signals_to_handle": str}
# Options of some releases. The image's torch would silently ignore variables that it does not know.
NEWER = (
    "event_log_handler",
    "log_line_prefix_template",
    "duplicate_stdout_filters",
    "duplicate_stderr_filters",
    "virtual_local_rank",
)


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Parses torchrun's options, or raises SettingsError; PET_ variables are their defaults.

    With `warm`, workers are forked from a process with torch.
    """
    try:
        parser = get_args_parser()
    except ValueError as error:  # a flag's variable that is not a number
        raise SettingsError(
            f"a PET_ variable for a flag of torchrun must be 0 or 1: {error}"
        ) from error
    parser.prog = "python -m elastic_pytorch.agent"

    def refuse(message: str) -> NoReturn:
        raise SettingsError(message)

    parser.error = refuse  # type: ignore[method-assign] # the message belongs to the pod's termination message too
    known = {action.dest for action in parser._actions}
    for name, kind in CARRIED_OUT.items():
        if name not in known:
            spellings = [f"--{name.replace('_', '-')}", f"--{name}"]
            parser.add_argument(
                *spellings, type=kind, default=os.environ.get(f"PET_{name.upper()}")
            )
    if "PET_SHUTDOWN_TIMEOUT" not in os.environ:
        parser.set_defaults(shutdown_timeout=os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"))
    for problem in unknown_variables(known):
        raise SettingsError(problem)
    untouched = object()
    parser.set_defaults(**dict.fromkeys(DECIDED, untouched))
    if "PET_START_METHOD" not in os.environ:
        parser.set_defaults(start_method="forkserver")
    if "PET_MONITOR_INTERVAL" not in os.environ:
        parser.set_defaults(monitor_interval=MONITOR_SECONDS)
    options = parser.parse_args(list(argv))
    for name, (decider, expected) in DECIDED.items():
        if getattr(options, name, untouched) is not untouched:
            raise SettingsError(
                f"--{name.replace('_', '-')} is not for the command line: "
                f"it is decided by {decider}"
            )
        setattr(options, name, expected)
    if options.training_script in LAUNCHERS and not options.no_python:
        raise SettingsError(
            f'args begin with what would follow {options.training_script}: write ["train.py"], '
            "or make it the `command`"
        )
    if options.no_python and options.module:
        raise SettingsError("--no-python and --module exclude each other")
    if options.signals_to_handle and "SIGTERM" not in options.signals_to_handle.split(","):
        raise SettingsError(
            "--signals-to-handle must contain SIGTERM: Kubernetes ends pods with it"
        )
    if options.max_restarts < 0:
        raise SettingsError("--max-restarts must be at least 0")
    if options.max_restarts != int(parser.get_default("max_restarts")):
        logger.warning(
            "--max-restarts=%d only sets TORCHELASTIC_MAX_RESTARTS: "
            "how many failures the job survives is decided by spec.failurePolicy.maxFailures",
            options.max_restarts,
        )
    if options.monitor_interval <= 0:
        raise SettingsError("--monitor-interval must be more than 0")
    # A script for this interpreter, as if it was given by its path. It overrides --no-python.
    if options.run_path:
        options.run_path = options.no_python = False
        other_interpreter = False
    else:
        other_interpreter = os.environ.get("PYTHON_EXEC", sys.executable) != sys.executable
    options.warm = (
        options.start_method != "spawn" and not options.no_python and not other_interpreter
    )
    return options


def unknown_variables(known: Collection[str]) -> list[str]:
    return [
        f"PET_{name.upper()} is set, but torch {torch.__version__} has no option "
        f"--{name.replace('_', '-')}: remove it from the container's env, "
        "or use an image with a newer torch"
        for name in NEWER
        if name not in known and f"PET_{name.upper()}" in os.environ
    ]


def worker_arguments(options: Any) -> tuple[str, ...]:
    mode = MODULE if options.module else SCRIPT
    return (mode, options.training_script, *options.training_script_args)
