"""The command line: a manifest or a script, whose job runs on this machine."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from elastic_pytorch_operator.runtime.logs import configure_logging

from elastic_pytorch_local.run import run_local

EXIT_CODES = (
    "It ends with 0 if the job is complete, 1 if it has failed, 2 if it cannot run here, 130 if it "
    "was stopped; with --faults, 0 after all of them, and 3 if steps were repeated at a change "
    "that was announced."
)


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    options = _parser().parse_args(words[:end])
    configure_logging(options.log_level, options.log_format)
    job = run_local(
        [path.resolve() for path in options.files],
        workdir=options.workdir,
        leave_out=options.leave_out,
        page=options.page,
        faults=options.faults,
        config_maps=options.configmap,
        arguments=words[end + 1 :],
        workers=options.workers,
    )
    return asyncio.run(job)


def _parser() -> argparse.ArgumentParser:
    about = (
        "Runs a job on this machine, without a cluster: the operator's planner and real agents; "
        "each pod is a process."
    )
    parser = argparse.ArgumentParser(
        prog="python -m elastic_pytorch_local",
        description=about,
        epilog=EXIT_CODES,
        usage="%(prog)s [options] {train.py | job.yaml ...} [-- arguments of the script]",
    )
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="train.py | job.yaml",
        help="a script; or the job's manifest, and files of what it refers to",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="how many (default: 3, or the manifest's replicas)"
    )
    parser.add_argument("--page", action="store_true", help="serve the page of `kubectl epj ui`")
    parser.add_argument(
        "--faults",
        action="store_true",
        help=(
            "kill a rank, lose a pod, grow and shrink the job; then print what each has cost, "
            "and stop"
        ),
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
        "--leave-out",
        action="store_true",
        help="run without what this machine cannot do, such as init containers",
    )
    parser.add_argument(
        "--workdir", type=Path, default=None, help="where volumes go (default: a temporary folder)"
    )
    parser.add_argument(
        "--log-level", default="WARNING", choices=["DEBUG", "INFO", "WARNING", "ERROR"]
    )
    parser.add_argument("--log-format", default="text", choices=["json", "text"])
    return parser


def _name_and_path(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        example = "NAME=PATH, such as settings=config.yaml"
        raise argparse.ArgumentTypeError(f"must be {example}, not {text}")
    return name, Path(path)
