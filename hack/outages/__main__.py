"""Prints what share of its GPU hours a job trains through a year of recorded outages, and draws it.

Without --trace, the outages are drawn from the seed by the facts of the trace, which hack/outages/recorded.py
names. docs/evidence/benchmarks.md has what was found with the trace itself, and each assumption.
"""

import argparse
import json
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from measure import markdown

from outages.picture import picture
from outages.policies import Policy, Training, course, share_with, trained_share
from outages.recorded import BEGUN, DAYS, SERVERS_BY_OUTAGES, draw, read

NODES, GPUS = 64, 8  # GPUs of a node
SPARES = (0, 1, 2, 4, 8)
SIZES = (8, 16, 32, 64)
PLAIN_SAVING = 10 / 1800  # an assumption: 10 s for each checkpoint
LIBRARY_SAVING = 0.008  # docs/use/gpu.md: training took 0.5 to 0.8 % longer
POLICIES = (
    Policy("all pods made again within 10 min", 600, repeats=True, saving=PLAIN_SAVING),
    Policy("HyperPod, checkpointless: 2 min", 120),
    Policy("TrainMover: 20 s", 20),
    Policy("PyTorchJob, elastic and tuned", 8.42, 8.42, True, True, True, saving=PLAIN_SAVING, elastic=True),
    Policy("here: plain script", 0.52, 0.42, True, True, True, saving=PLAIN_SAVING, elastic=True),
    Policy("here: library, fixed size", 0.57, 0.34, True, saving=LIBRARY_SAVING),
    Policy("here: library, `prepare`", 0.57, 0.34, True, saving=LIBRARY_SAVING, elastic=True),
)
FASTEST = 2  # of those of a fixed size
SHOWN = (0, 2, 6)  # in the picture


def shares(nodes: int, spares: int, training: Training, options: argparse.Namespace) -> tuple[float, list[float]]:
    """How much of the year all wanted nodes are up, and the trained share of each policy.

    Both are means over draws of the servers that the job holds, which are the same ones for each policy.
    """
    chance, held = random.Random(f"{nodes} {spares} {options.seed}"), nodes + spares
    recorded = read(options.trace) if options.trace else None
    courses = [course(chance.sample(recorded or draw(chance), held)) for _ in range(options.draws)]
    whole = statistics.fmean(share_with(nodes, times) for times in courses)
    return whole, [
        statistics.fmean(trained_share(nodes, held, times, policy, training) for times in courses) for policy in POLICIES
    ]


def by_spares(found: Mapping[int, Sequence[float]]) -> str:
    """The table of the policies, each with its share at each number of spares."""
    head = ("policy", *(f"{spares} spare{'' if spares == 1 else 's'}" for spares in found))
    rows = [(policy.title, *(percent(row[number]) for row in found.values())) for number, policy in enumerate(POLICIES)]
    return markdown.table(head, rows)


def by_size(training: Training, options: argparse.Namespace) -> str:
    """The table of groups without spares, from small to large."""
    rows = []
    for nodes in SIZES:
        whole, found = shares(nodes, 0, training, options)
        hours = DAYS * 24 * sum(SERVERS_BY_OUTAGES) / sum(begun for begun, _ in BEGUN) / nodes
        rows.append((f"{nodes * GPUS} GPUs", f"{hours:.0f} h", percent(whole), percent(found[FASTEST]), percent(found[-1])))
    head = ("size", "an outage each", "all nodes are up", POLICIES[FASTEST].title, POLICIES[-1].title)
    return markdown.table(head, rows)


def of_spot(file: Path, training: Training) -> str:
    """The line of a trace of SkyPilot's: as shares of the hours in which a spot node was there."""
    told = json.loads(file.read_text())
    gap, counts = float(told["metadata"]["gap_seconds"]), [int(count) for count in told["data"]]
    times = [(number * gap, up) for number, up in enumerate([*counts, counts[-1]])]
    nodes = max(counts)
    there = sum(counts) / len(counts) / nodes
    found = [trained_share(nodes, nodes, times, policy, training) / there for policy in POLICIES]
    told_of = (
        f"{file.stem}, {nodes} nodes, all {percent(share_with(nodes, times))}, none {percent(counts.count(0) / len(counts))}"
    )
    return f"{told_of}: {', '.join(percent(share) for share in found)}"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="hack/outages", description=__doc__, formatter_class=formatter)
    parser.add_argument("--trace", type=Path, metavar="FILE", help="StepFun's fault_trace.json")
    parser.add_argument("--spot", type=Path, nargs="+", default=[], metavar="FILE", help="traces of SkyPilot's spot-traces")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="the SVG to write")
    parser.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--draws", type=int, default=300, help="of the servers of a job (default: %(default)s)")
    for field in fields(Training):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=float, default=field.default, help="(default: %(default)s)"
        )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse_options(arguments)
    training = Training(**{field.name: getattr(options, field.name) for field in fields(Training)})
    found = {spares: shares(NODES, spares, training, options)[1] for spares in SPARES}
    print(by_spares(found), by_size(training, options), *(of_spot(file, training) for file in options.spot), sep="\n")
    if options.picture:
        options.picture.write_text(picture({POLICIES[n].title: [row[n] for row in found.values()] for n in SHOWN}, SPARES))
    return 0


if __name__ == "__main__":
    sys.exit(main())
