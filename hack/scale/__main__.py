"""Measures what many jobs and workers cost the operator on the kind cluster.

Fake nodes run the pods, and a load generator in the cluster speaks for their agents. A run creates
jobs, waits until all train, pauses, loses pods one by one, and kills the leader while more pods are
lost. docs/evidence/scale.md says more.
"""

import argparse
import os
import shutil
import sys
from datetime import UTC, datetime
from functools import partial

from measure import engine
from measure.api import Api
from measure.commands import Commands
from measure.kind_cluster import FILES, KUBECONFIG, KUBECTL, ROOT
from measure.program import new_parser, say
from measure.program import run as run_program

from scale import results
from scale.course import run
from scale.fake_nodes import PODS_PER_NODE, fake_nodes
from scale.results import Result
from scale.stage import Stage

FOLDER, PAGE = FILES / "scale", ROOT / "docs" / "evidence" / "scale.md"
KEPT = PAGE.with_suffix("")
CURVE = ((1, 10), (10, 10), (100, 10), (1000, 10), (1, 100), (1, 1000), (1, 2000), (1, 4000))
TROUBLE = (RuntimeError, *engine.TROUBLE)


def parse_options() -> argparse.Namespace:
    parser = new_parser("scale", __doc__)
    parser.add_argument("--jobs", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=10, help="of each job (default: %(default)s)"
    )
    parser.add_argument(
        "--curve", action="store_true", help=f"all of {', '.join(f'{j}x{w}' for j, w in CURVE)}"
    )
    parser.add_argument(
        "--values",
        default="",
        metavar="FILE",
        help="of the operator's chart, meanwhile (default: as it is)",
    )
    parser.add_argument(
        "--docs",
        action="store_true",
        help="only copy what was measured to docs/evidence/scale, and write the tables of scale.md",
    )
    return parser.parse_args()


async def measure(options: argparse.Namespace) -> int:
    failed = False
    async with Api.connect(KUBECONFIG) as api:
        for jobs, workers in CURVE if options.curve else ((options.jobs, options.workers),):
            result = Result(jobs, workers, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
            say(f"{jobs} jobs of {workers} workers, on {os.cpu_count()} cores:")
            stage = Stage(api, Commands(KUBECTL, KUBECONFIG), jobs, workers)
            try:
                async with (
                    fake_nodes(api, -(-jobs * workers // PODS_PER_NODE) + 1),
                    stage.values(options.values),
                ):
                    result.operator = await stage.operator_settings()
                    try:
                        await run(stage, result, FOLDER, say)
                    except* TROUBLE as errors:
                        said = (f"{type(e).__name__}: {e}" for e in errors.exceptions)
                        result.error = "; ".join(said)
                        say(f"  FAILED: {result.error}")
            finally:
                say(str(results.write(FOLDER, result).relative_to(ROOT)))
            failed |= bool(result.error or result.falsely_lost)
    say(results.tables(results.read_all(FOLDER)))
    return int(failed)


def main() -> int:
    options = parse_options()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.docs:
        for path in FOLDER.glob("*x*.json"):
            shutil.copy(path, KEPT)
        PAGE.write_text(results.page(PAGE.read_text(), results.read_all(KEPT)))
        return 0
    return run_program(partial(measure, options), "scale")


if __name__ == "__main__":
    sys.exit(main())
