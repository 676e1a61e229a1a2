"""The command line: torchrun's own, without what the operator decides."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from torch.distributed.run import get_args_parser

from elastic_pytorch.rendezvous import BACKEND
from elastic_pytorch.settings import SettingsError

MONITOR_SECONDS = 0.05

# Options that make no sense for a pod of a job, and what decides instead.
DECIDED = {
    "nnodes": "spec.minReplicas and spec.maxReplicas of the job",
    "node_rank": "the operator, anew for each round",
    "standalone": "spec.maxReplicas: 1 of the job",
    "rdzv_backend": "spec.rendezvous.backend of the job",
    "rdzv_endpoint": "spec.rendezvous of the job",
    "rdzv_id": "the job's UID",
    "rdzv_conf": "spec.rendezvous of the job",
    "master_addr": "the operator: rank 0's address of each round",
    "master_port": "spec.rendezvous.port of the job",
}


class OptionsError(SettingsError):
    """A command line that cannot be run; the message says why."""


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Parses torchrun's options; PET_ variables are their defaults.

    Returns:
        What torchrun's parser returns, plus `warm`: whether workers are forked from a process that has imported torch.

    Raises:
        OptionsError: the options are wrong, or not this agent's to decide.
    """
    parser = get_args_parser()
    parser.prog = "python -m elastic_pytorch.agent"

    def refuse(message: str) -> NoReturn:
        raise OptionsError(message)

    parser.error = refuse  # type: ignore[method-assign] # the message belongs to the pod's termination message too
    untouched = object()
    parser.set_defaults(**dict.fromkeys(DECIDED, untouched))
    if "PET_START_METHOD" not in os.environ:
        parser.set_defaults(start_method="forkserver")
    if "PET_MONITOR_INTERVAL" not in os.environ:
        parser.set_defaults(monitor_interval=MONITOR_SECONDS)
    options = parser.parse_args(list(argv))
    for name, decider in DECIDED.items():
        if getattr(options, name, untouched) is not untouched:
            raise OptionsError(f"--{name.replace('_', '-')} is not for the command line: it is decided by {decider}")
    if options.no_python and options.module:
        raise OptionsError("--no-python and --module exclude each other")
    if options.monitor_interval <= 0:
        raise OptionsError("--monitor-interval must be more than 0")
    # What torchrun's own reading of the options expects; none of it is used.
    vars(options).update(
        nnodes="1:1",
        node_rank=0,
        standalone=False,
        rdzv_backend=BACKEND,
        rdzv_endpoint="operator",
        rdzv_id="",
        rdzv_conf="",
        master_addr="",
        master_port=0,
    )
    other_interpreter = os.environ.get("PYTHON_EXEC", sys.executable) != sys.executable
    options.warm = options.start_method != "spawn" and not options.no_python and not other_interpreter
    return options


def worker_arguments(options: Any) -> tuple[str, ...]:
    """The arguments of `run_script` for these options."""
    mode = "module" if options.module else "script"
    return (mode, options.training_script, *options.training_script_args)
