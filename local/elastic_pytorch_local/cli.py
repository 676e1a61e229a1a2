"""The command line: a manifest, whose job runs on this machine."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from elastic_pytorch_operator.runtime.logs import configure_logging

from elastic_pytorch_local.run import run_local


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a job; returns the process's exit code: 0 if it is complete, 1 if it has failed, 2 if it cannot run here, 130 if stopped."""
    options = _parser().parse_args(arguments)
    configure_logging(options.log_level, options.log_format)
    files = [path.resolve() for path in options.files]
    return asyncio.run(run_local(files, options.workdir, config_maps=options.configmap, leave_out=options.leave_out))


def _parser() -> argparse.ArgumentParser:
    about = "Runs a job on this machine, without a cluster: the operator's planner and real agents; each pod is a process."
    parser = argparse.ArgumentParser(prog="python -m elastic_pytorch_local", description=about)
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="job.yaml", help="the job's manifest, and files of what it refers to"
    )
    parser.add_argument(
        "--configmap",
        type=_name_and_path,
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="a ConfigMap of a file, or of the files of a folder",
    )
    parser.add_argument(
        "--leave-out", action="store_true", help="run without what this machine cannot do, such as init containers"
    )
    parser.add_argument("--workdir", type=Path, default=None, help="where volumes go (default: a temporary folder)")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    parser.add_argument("--log-format", default="text", choices=["json", "text"])
    return parser


def _name_and_path(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"must be NAME=PATH, such as settings=config.yaml, not {text}")
    return name, Path(path)
