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
    return asyncio.run(run_local([path.resolve() for path in options.files], options.workdir))


def _parser() -> argparse.ArgumentParser:
    about = "Runs a job on this machine, without a cluster: the operator's planner and real agents; each pod is a process."
    parser = argparse.ArgumentParser(prog="python -m elastic_pytorch_local", description=about)
    parser.add_argument(
        "files", type=Path, nargs="+", metavar="job.yaml", help="the job's manifest, and files of what it refers to"
    )
    parser.add_argument("--workdir", type=Path, default=None, help="where volumes go (default: a temporary folder)")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    parser.add_argument("--log-format", default="text", choices=["json", "text"])
    return parser
