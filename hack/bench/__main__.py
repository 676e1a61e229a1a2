"""Measures how long the operator's promises take, by repeated faults to a job on a cluster.

The job is examples/all-reduce, plain torchrun code with steps of 0.1 s, in a namespace that is
removed at the end; with --library, a script of the training library.
"""

import argparse
import sys
from functools import partial
from itertools import groupby, product

from elastic_pytorch_local.faults.watcher import Watcher, background
from measure.kind_cluster import ROOT
from measure.program import add_trials, complain, new_parser, run, say, session

from bench import trials
from bench.report import complaints, table
from bench.scenarios import SCENARIOS
from bench.stage import BenchStage, Scenario, read_job
from bench.trials import Trial

EXAMPLE = ROOT / "examples" / "all-reduce"


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser("bench", __doc__)
    add_trials(parser, SCENARIOS, list(SCENARIOS), "all")
    library = "of a script that uses the training library, and keeps its processes"
    parser.add_argument("--library", action="store_true", help=library)
    return parser.parse_args(arguments)


def in_order(names: list[str], turns: int) -> list[tuple[Scenario, int]]:
    """All trials: scaling up and down alternate, and other kinds come in a row."""
    kinds = groupby(names, key=lambda name: name.removesuffix("-up").removesuffix("-down"))
    return [
        (SCENARIOS[name], turn) for _, kind in kinds for turn, name in product(range(turns), kind)
    ]


async def measure(options: argparse.Namespace) -> int:
    found = list[Trial]()
    manifest = read_job(EXAMPLE / ("elastic.yaml" if options.library else "job.yaml"))
    name = manifest["metadata"]["name"]
    try:
        async with session("bench", (), say) as made:
            watcher = Watcher(made.driver, name)
            async with background(watcher.run()):
                stage = BenchStage(made.driver, watcher, manifest)
                ordered = in_order(options.only, options.trials)
                await trials.run(stage, name, ordered, found.append, say)
    finally:
        say(table(found))
        status = complain(complaints(found))
    return status


def main() -> int:
    return run(partial(measure, parse_options()), "bench")


if __name__ == "__main__":
    sys.exit(main())
