"""Measures how long the operator's promises take, by repeated faults to a job on a cluster.

The job is examples/all-reduce, plain torchrun code with steps of 0.1 s, in a namespace that is
removed at the end; with --library, a script of the training library. The kinds that end in -handler
use the same script with a handler of SIGTERM, which the training library's does not need.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from itertools import groupby, product

from elastic_pytorch_local.faults.watcher import Watcher, background
from measure.kind_cluster import ROOT
from measure.program import add_trials, complain, new_parser, run, say, session

from bench import trials
from bench.report import complaints, table
from bench.scenarios import PLAIN, SCENARIOS, Scenario
from bench.stage import BenchStage, SetUp, read_job
from bench.trials import Trial

EXAMPLE = ROOT / "examples" / "all-reduce"


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser("bench", __doc__)
    add_trials(parser, SCENARIOS, list(SCENARIOS), "all")
    parser.add_argument(
        "--library",
        action="store_true",
        help="of a script that uses the training library, and keeps its processes",
    )
    parser.add_argument(
        "--set-up-seconds",
        type=float,
        default=0.0,
        help="with --library: what the script takes until it can train",
    )
    parser.add_argument(
        "--prepare",
        action="store_true",
        help="with --library: workers do that before they join (spec.prepare)",
    )
    parser.add_argument(
        "--spares",
        type=int,
        default=0,
        help="with --library: workers that wait, ready, for a loss (spec.spares)",
    )
    options = parser.parse_args(arguments)
    if not options.library and (options.set_up_seconds or options.prepare or options.spares):
        parser.error("a set-up and spares are measured with --library")
    if options.library:
        options.only = [name for name in options.only if name in PLAIN]
    return options


def in_order(names: list[str], turns: int) -> list[tuple[Scenario, int]]:
    """All trials: scaling up and down alternate, other kinds come in a row, handlers last."""
    names = sorted(names, key=lambda name: name not in PLAIN)
    kinds = groupby(names, key=lambda name: name.removesuffix("-up").removesuffix("-down"))
    return [
        (SCENARIOS[name], turn) for _, kind in kinds for turn, name in product(range(turns), kind)
    ]


async def measure(options: argparse.Namespace) -> int:
    found, set_up = list[Trial](), SetUp(options.set_up_seconds, options.prepare, options.spares)
    manifest = EXAMPLE / ("elastic.yaml" if options.library else "job.yaml")
    name = read_job(manifest, handler=False)["metadata"]["name"]
    try:
        async with session("bench", (), say) as made:
            watcher = Watcher(made.driver, name)
            async with background(watcher.run()):
                stage = BenchStage(made.driver, watcher, manifest, set_up)
                await trials.run(
                    stage, name, in_order(options.only, options.trials), found.append, say
                )
    finally:
        status = show(found)
    return status


def show(found: Sequence[Trial]) -> int:
    say(table(found))
    return complain(complaints(found))


def main() -> int:
    return run(partial(measure, parse_options()), "bench")


if __name__ == "__main__":
    sys.exit(main())
