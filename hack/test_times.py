"""Prints the wall and CPU seconds of the last `make test`, by folder, and of the dearest tests.

The CPU seconds are those of the tests' own processes. Tests run side by side, so their wall seconds
add up to several times those of the run.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

TIMES = Path(".cluster/times")
FOLDER_DEPTH = 3  # tests/operator/planning


class Cost(NamedTuple):
    wall_seconds: float
    cpu_seconds: float
    tests: int = 1


def read_costs(lines: Iterable[str]) -> dict[str, Cost]:
    rows = (line.rstrip("\n").rsplit("\t", 2) for line in lines)
    return {test: Cost(float(wall), float(cpu)) for test, wall, cpu in rows}


def by_folder(costs: Mapping[str, Cost]) -> dict[str, Cost]:
    sums: dict[str, list[Cost]] = defaultdict(list)
    for test, cost in costs.items():
        sums["/".join(Path(test.partition("::")[0]).parent.parts[:FOLDER_DEPTH])].append(cost)
    return {folder: total(all_of_it) for folder, all_of_it in sums.items()}


def total(costs: Iterable[Cost]) -> Cost:
    walls, cpus, tests = zip(Cost(0, 0, 0), *costs, strict=True)
    return Cost(sum(walls), sum(cpus), sum(tests))


def table(title: str, costs: Mapping[str, Cost], most: int | None = None) -> str:
    rows = [f"{'wall s':>9} {'CPU s':>9} {'tests':>6}  {title}"]
    dearest = sorted(costs.items(), key=lambda item: -item[1].cpu_seconds)
    for name, cost in dearest[:most]:
        rows.append(f"{cost.wall_seconds:>9.1f} {cost.cpu_seconds:>9.1f} {cost.tests:>6}  {name}")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-times", description=__doc__)
    parser.add_argument(
        "--tests",
        type=int,
        default=25,
        help="how many tests of each half to print (default: %(default)s)",
    )
    shown = parser.parse_args().tests
    records = sorted(TIMES.glob("*.tsv"))
    for record in records:
        costs = read_costs(record.read_text().splitlines())
        folders = table("folder", {**by_folder(costs), "all": total(costs.values())})
        print(f"\nThe {record.stem} half\n\n{folders}\n\n{table('test', costs, shown)}")
    if not records:
        runs = "`make test`, `make test-fast` or `make test-e2e`"
        print(f"No times are recorded here yet: run {runs} first.", file=sys.stderr)
    return 0 if records else 1


if __name__ == "__main__":
    sys.exit(main())
