"""Measures on a running cluster how long the operator's promises take: faults are made to a job, again and again.

It needs a cluster with the operator on it (`make bench` makes both). The job is examples/all-reduce, plain torchrun code with steps
of 0.1 s, in a namespace of its own that is removed at the end; with --library a script that uses the training library. The kinds whose
names end in -handler are made to the same script with a handler of SIGTERM, which the one of the training library has no need of.
"""

import argparse
import sys
from functools import partial
from itertools import groupby, product
from pathlib import Path

from elastic_pytorch_local.faults.watcher import Watcher, background
from measure.kind_cluster import FILES, ROOT
from measure.program import names_of, new_console, new_parser, run, session

from bench import picture, trials
from bench.report import complaints, main_table, phase_table
from bench.scenarios import PLAIN, SCENARIOS, Scenario
from bench.stage import BenchStage, SetUp, read_job
from bench.trials import Trial

EXAMPLE = ROOT / "examples" / "all-reduce"
console = new_console(highlight=False)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser("bench", __doc__)
    parser.add_argument("--trials", type=int, default=5, help="of each kind (default: %(default)s)")
    kinds = f"of {', '.join(SCENARIOS)}"
    parser.add_argument("--only", metavar="a,b", type=names_of(SCENARIOS, "kind"), default=list(SCENARIOS), help=kinds)
    parser.add_argument("--keep", action="store_true", help="keep the earlier results of the kinds that are not measured now")
    parser.add_argument(
        "--library", action="store_true", help="of a script that uses the training library, and keeps its processes"
    )
    parser.add_argument(
        "--set-up-seconds", type=float, default=0.0, help="with --library: what the script takes until it can train"
    )
    parser.add_argument(
        "--prepare", action="store_true", help="with --library: workers do that before they join (spec.prepare)"
    )
    parser.add_argument(
        "--spares", type=int, default=0, help="with --library: workers that wait, ready, for a loss (spec.spares)"
    )
    parser.add_argument("--report", action="store_true", help="only show the earlier results again")
    options = parser.parse_args(arguments)
    if not options.library and (options.set_up_seconds or options.prepare or options.spares):
        parser.error("a set-up and spares are measured with --library")
    if options.library:
        options.only = [name for name in options.only if name in PLAIN]
    return options


def _kind(options: argparse.Namespace) -> str:
    """Names the results: by the script, and by what it does before its first step."""
    if options.prepare or options.spares:
        return "prepared"
    if options.set_up_seconds:
        return "set-up"
    return "library" if options.library else "plain"


def in_order(names: list[str], turns: int) -> list[tuple[Scenario, int]]:
    """Returns all trials: kind by kind, but scaling up and down in turns, as one undoes the other; those with a handler last."""
    names = sorted(names, key=lambda name: name not in PLAIN)
    kinds = groupby(names, key=lambda name: name.removesuffix("-up").removesuffix("-down"))
    return [(SCENARIOS[name], turn) for _, kind in kinds for turn, name in product(range(turns), kind)]


def say(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


async def measure(options: argparse.Namespace, file: Path) -> int:
    """Makes the trials, of which each is on disk as soon as it is known; returns the exit status."""
    found = [trial for trial in trials.read(file)[0] if options.keep and trial.kind not in options.only]

    def keep(trial: Trial) -> None:
        found.append(trial)
        trials.write(file, found)

    set_up = SetUp(options.set_up_seconds, options.prepare, options.spares)
    manifest = EXAMPLE / ("elastic.yaml" if options.library else "job.yaml")
    name = read_job(manifest, handler=False)["metadata"]["name"]
    async with session("bench", (), say) as made:
        watcher = Watcher(made.driver, name)
        async with background(watcher.run()):
            stage = BenchStage(made.driver, watcher, manifest, set_up)
            await trials.run(stage, name, in_order(options.only, options.trials), keep, say)
    return show(file)


def show(file: Path) -> int:
    """Prints the tables, and draws the picture; returns 1 if something is not as it should be."""
    found, drawing = trials.read(file)[0], file.with_suffix(".png")
    if found:
        console.print(main_table(found))
        console.print(phase_table(found))
        picture.draw(found, drawing)
        say(f"{file.relative_to(ROOT)}  {drawing.relative_to(ROOT)}")
    said = complaints(found)
    for complaint in said:
        console.print(complaint, style="red", markup=False)
    return 1 if said else 0


def main() -> int:
    options = parse_options()
    file = FILES / "bench" / f"{_kind(options)}.json"
    return show(file) if options.report else run(partial(measure, options, file), "bench")


if __name__ == "__main__":
    sys.exit(main())
