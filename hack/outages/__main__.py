"""Prints the share of its GPU hours that a job trains in a year of outages.

Without --trace, the outages are drawn from the seed by the facts in hack/outages/recorded.py.
docs/evidence/benchmarks.md has the results of the trace itself, and each assumption.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from measure import markdown
from measure.program import new_parser

from outages.policies import Policy, Training, course, trained_share
from outages.recorded import draw, read

NODES, GPUS = 64, 8  # GPUs of a node
SPARES = (0, 1, 2, 4, 8)
SIZES = (8, 16, 32, 64)
PLAIN_SAVING = 10 / 1800  # an assumption: 10 s for each checkpoint
LIBRARY_SAVING = 0.008  # docs/use/gpu.md: training took 0.5 to 0.8 % longer
POLICIES = (
    Policy("all pods made again within 10 min", 600, repeats=True, saving=PLAIN_SAVING),
    Policy("HyperPod, checkpointless: 2 min", 120),
    Policy("TrainMover: 20 s", 20),
    Policy(
        *("PyTorchJob, elastic and tuned", 8.42, 8.42, True, True, True),
        saving=PLAIN_SAVING,
        elastic=True,
    ),
    Policy("here: plain script", 0.52, 0.42, True, True, True, saving=PLAIN_SAVING, elastic=True),
    Policy("here: library, fixed size", 0.57, 0.34, True, saving=LIBRARY_SAVING),
    Policy("here: library, `prepare`", 0.57, 0.34, True, saving=LIBRARY_SAVING, elastic=True),
)
OF_SIZES = (0, 2, 6)  # in the table of sizes


def shares(nodes: int, spares: int, options: argparse.Namespace) -> list[float]:
    """The mean share of each policy, over draws of the servers that all policies have."""
    chance, held = random.Random(f"{nodes} {spares} {options.seed}"), nodes + spares
    recorded = read(options.trace) if options.trace else None
    courses = [course(chance.sample(recorded or draw(chance), held)) for _ in range(options.draws)]
    training = Training(smaller=options.smaller)
    return [
        statistics.fmean(trained_share(nodes, held, times, policy, training) for times in courses)
        for policy in POLICIES
    ]


def table(columns: Mapping[str, Sequence[float]], shown: Iterable[int]) -> str:
    rows = [
        (POLICIES[number].title, *(f"{100 * column[number]:.1f} %" for column in columns.values()))
        for number in shown
    ]
    return markdown.table(("policy", *columns), rows)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser("outages", __doc__)
    add = parser.add_argument
    add("--trace", type=Path, metavar="FILE", help="StepFun's fault_trace.json")
    add("--seed", type=int, default=1, help="(default: %(default)s)")
    add("--draws", type=int, default=300, help="of the servers of a job (default: %(default)s)")
    smaller = "the speed of a smaller group, as a share of its nodes' (default: %(default)s)"
    add("--smaller", type=float, default=Training().smaller, help=smaller)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse_options(arguments)
    by_spares = {
        f"{spares} spare{'' if spares == 1 else 's'}": shares(NODES, spares, options)
        for spares in SPARES
    }
    by_size = {f"{nodes * GPUS} GPUs": shares(nodes, 0, options) for nodes in SIZES}
    print(table(by_spares, range(len(POLICIES))), table(by_size, OF_SIZES), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
