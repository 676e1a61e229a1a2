"""Plays days of a simulated world from a seed; exits with 1 if something did not hold."""

import argparse
import sys
import time
from collections.abc import Collection
from dataclasses import replace

from tests.simulation.acts import BY_NAME, Act, calendar
from tests.simulation.invariants import Violation
from tests.simulation.story import Story, shrink
from tests.simulation.world import Setting, play


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("simulate", description=__doc__)
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--per-day", type=float, default=24.0, help="moments at which something happens"
    )
    parser.add_argument(
        "--acts",
        type=lambda text: text.split(","),
        default=list(BY_NAME),
        help="names of those that may happen",
    )
    parser.add_argument("--full", action="store_true", help="live through quiet, too")
    parser.add_argument("--only", help="numbers of the only acts that happen, as 1,2,3")
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="look for the fewest acts after which it does not hold",
    )
    parser.add_argument("--tell", action="store_true", help="the whole story")
    return parser.parse_args(arguments)


def main() -> int:
    options = parse_options()
    setting = Setting(
        options.seed, options.days, options.nodes, options.jobs, skips=not options.full
    )
    acts = calendar(options.seed, options.days, options.per_day, options.acts)
    if options.only is not None:
        only = {int(number) for number in options.only.split(",") if number}
        acts = [act for act in acts if act.number in only]
    began = time.process_time()
    story, violation = run(setting, acts)
    seconds = time.process_time() - began
    if violation and options.shrink:
        acts = shorten(setting, acts, story.lines[-1].at)
        story, violation = run(replace(setting, days=story.lines[-1].at / 86_400.0), acts)
    for line in story.lines if options.tell or violation else ():
        print(f"{line.at:12.3f} {line.who}: {line.what}")
    length = f"{len(acts)} acts in {options.days:g} days"
    print(f"seed {options.seed}: {length}, story {story.digest}, {seconds:.1f} s of processor time")
    if violation:
        print(
            f"VIOLATION: {violation}\nacts: {','.join(str(act.number) for act in acts)}",
            file=sys.stderr,
        )
    return violation is not None


def run(setting: Setting, acts: list[Act]) -> tuple[Story, Violation | None]:
    """Plays acts; returns what happened, and what did not hold."""
    try:
        return play(setting, acts), None
    except Violation as violation:
        return violation.story, violation


def shorten(setting: Setting, acts: list[Act], at: float) -> list[Act]:
    """The fewest acts before a moment after which something does not hold."""
    until = replace(setting, days=(at + 1.0) / 86_400.0)
    before = {act.number: act for act in acts if act.at <= at}

    def fails(numbers: Collection[int]) -> bool:
        return run(until, [before[number] for number in numbers])[1] is not None

    return [before[number] for number in shrink(list(before), fails)]


if __name__ == "__main__":
    sys.exit(main())
