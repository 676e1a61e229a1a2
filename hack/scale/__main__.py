"""Measures what many jobs and workers cost the operator, on the kind cluster with the operator on it (`make scale` makes both).

Fake nodes run the pods, and a load generator in the cluster speaks for their agents. A run creates jobs, waits until all train, is quiet
for a while, loses pods one by one, and kills the leader while more pods are lost. docs/evidence/scale.md says more.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
from datetime import UTC, datetime

from elastic_pytorch_local.faults import engine
from kubernetes import config
from measure.api import Api
from measure.commands import Commands
from measure.kind_cluster import FILES, KUBECONFIG, KUBECTL, ROOT
from measure.program import cancel_on_signals, new_console, new_parser

from scale import results
from scale.course import run
from scale.fake_nodes import PODS_PER_NODE, fake_nodes
from scale.results import Result
from scale.stage import Stage

FOLDER, PAGE, KEPT = FILES / "scale", ROOT / "docs" / "evidence" / "scale.md", ROOT / "docs" / "evidence" / "scale"
CURVE = ((1, 10), (10, 10), (100, 10), (1000, 10), (1, 100), (1, 1000), (1, 2000), (1, 4000))
TROUBLE = (RuntimeError, *engine.TROUBLE)
console = new_console()


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser("scale", __doc__)
    parser.add_argument("--jobs", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=10, help="of each job (default: %(default)s)")
    parser.add_argument("--curve", action="store_true", help=f"all of {', '.join(f'{j}x{w}' for j, w in CURVE)}")
    parser.add_argument("--quiet", type=float, default=60.0, metavar="SECONDS", help="without any event (default: %(default)s)")
    parser.add_argument(
        "--losses", type=int, default=20, help="pods that are lost, and again at the takeover (default: %(default)s)"
    )
    parser.add_argument(
        "--import-seconds", type=float, default=2.0, help="from a container's start to its agent's (default: %(default)s)"
    )
    parser.add_argument("--values", default="", metavar="FILE", help="of the operator's chart, meanwhile (default: as it is)")
    parser.add_argument("--profile", action="store_true", help="of the leader by py-spy, while it is quiet; needs root")
    parser.add_argument(
        "--docs",
        action="store_true",
        help="only keep what was measured in docs/evidence/scale, and write the tables of docs/evidence/scale.md",
    )
    return parser.parse_args(arguments)


def say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


async def measure(options: argparse.Namespace, result: Result) -> None:
    cancel_on_signals()
    async with Api.connect(KUBECONFIG) as api:
        stage = Stage(api, Commands(KUBECTL, KUBECONFIG), result.jobs, result.workers)
        async with stage.values(options.values):
            result.operator = await stage.operator_settings()
            try:
                await run(stage, options, result, FOLDER, say)
            except* TROUBLE as errors:
                result.error = "; ".join(f"{type(error).__name__}: {error}" for error in errors.exceptions)
                say(f"  FAILED: {result.error}")


def main() -> int:
    options = parse_options()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.docs:
        for path in FOLDER.glob("*x*.json"):
            shutil.copy(path, KEPT)
        PAGE.write_text(results.page(PAGE.read_text(), results.read_all(KEPT)))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from kubernetes.client import CoreV1Api  # noqa: PLC0415 - takes a second

    core = CoreV1Api(config.new_client_from_config(str(KUBECONFIG)))  # type: ignore[no-untyped-call]
    failed = False
    for jobs, workers in CURVE if options.curve else ((options.jobs, options.workers),):
        result = Result(jobs, workers, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        say(f"{jobs} jobs of {workers} workers, on {os.cpu_count()} cores:")
        try:
            with fake_nodes(core, -(-jobs * workers // PODS_PER_NODE) + 1):
                asyncio.run(measure(options, result))
        except (KeyboardInterrupt, asyncio.CancelledError):
            say("Interrupted: all was removed.")
            return 130
        finally:
            say(str(results.write(FOLDER, result).relative_to(ROOT)))
        failed |= bool(result.error or result.falsely_lost)
    console.print(results.tables(results.read_all(FOLDER)), markup=False, highlight=False, soft_wrap=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
