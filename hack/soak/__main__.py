"""Makes random faults to jobs of all sorts on the kind cluster, and checks the promises.

The exit status is 0 if every promise was kept. Seed and length decide which faults come when;
--replay repeats the faults of an earlier run.
"""

import argparse
import json
import sys
import time
from functools import partial

from elastic_pytorch_local.faults.watcher import Waited
from measure.kind_cluster import FILES, ROOT
from measure.program import names_of, say
from measure.program import run as run_program

from soak import drawn_acts, report
from soak.jobs import SORTS, USUAL
from soak.plan import KINDS, SETTLED, made_to
from soak.run import run
from soak.verdict import violations

SETTLED_ALIAS = "settled"
COMPARE = (
    "the report of the same run without --hostile: fails if a job's pauses are more than "
    f"{report.MOST_TIMES:g} times those"
)
RESULTS = FILES / "soak"


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10, help="of faults (default: %(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=int(time.time()),
        help="of all that is random (default: the time)",
    )
    jobs = f"of {', '.join(SORTS)} (default: {', '.join(USUAL)})"
    parser.add_argument(
        "--jobs", metavar="a,b", type=names_of(SORTS), default=list(USUAL), help=jobs
    )
    kinds = (
        f"of {', '.join(KINDS)}; {SETTLED_ALIAS}: those that leave the operator and the API "
        "server alone"
    )
    parser.add_argument("--faults", metavar="a,b", type=_kinds, default=list(KINDS), help=kinds)
    parser.add_argument(
        "--longest",
        type=float,
        default=90,
        help="seconds that a fault lasts (default: %(default)s)",
    )
    parser.add_argument(
        "--replay",
        metavar="FILE",
        type=argparse.FileType(),
        help="the report of the run to be made again",
    )
    parser.add_argument(
        "--hostile",
        action="store_true",
        help="beside a tenant that does everything wrong in its namespaces",
    )
    parser.add_argument("--compare", metavar="FILE", type=argparse.FileType(), help=COMPARE)
    parser.add_argument("--dry-run", action="store_true", help="only print the faults")
    options = parser.parse_args(arguments)
    options.faults = made_to(options.jobs, options.faults)
    if not options.faults:
        parser.error("none of these faults is made to any of these jobs")
    made = [KINDS[name] for name in options.faults]
    options.acts = drawn_acts.draw(options.seed, 60 * options.minutes, made, options.longest)
    if options.replay:
        earlier = json.load(options.replay)
        options.seed, options.minutes = earlier["seed"], earlier["minutes"]
        options.jobs = earlier["jobs"]
        options.acts = drawn_acts.from_json(earlier["acts"])
    options.earlier = json.load(options.compare) if options.compare else None
    if options.earlier and not report.same_run(options.earlier, options.jobs, options.acts):
        parser.error("--compare needs a run of the same seed, minutes, faults and jobs")
    return options


def _kinds(text: str) -> list[str]:
    return list(SETTLED) if text == SETTLED_ALIAS else names_of(KINDS)(text)


async def soak(options: argparse.Namespace) -> int:
    """Returns 0 (all promises kept), 1 (not, or pauses too long) or 2 (the run did not begin)."""
    began = time.time()

    def tell(text: str) -> None:
        say(f"[{time.time() - began:5.0f} s] {text}")

    try:
        seen = await run(
            options.acts,
            [SORTS[name] for name in options.jobs],
            60 * options.minutes,
            tell,
            hostile=options.hostile,
        )
    except Waited as waited:
        tell(f"{waited}. What the cluster looks like is in .cluster/logs/e2e.")
        return 2
    found = violations(seen)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(began))
    file = RESULTS / f"seed-{options.seed}-{stamp}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    entry = {
        "seed": options.seed,
        "minutes": options.minutes,
        "jobs": options.jobs,
        "acts": drawn_acts.to_json(options.acts),
    }
    file.write_text(json.dumps(entry | report.to_json(seen, found), indent=1) + "\n")
    compared = []
    if options.earlier:
        compared = report.compare(report.pauses_by_job(seen), options.earlier["pauses"])
    report.show(seen, found, compared)
    say(f"{file.relative_to(ROOT)}  (--replay makes the same faults again)")
    return 1 if found or any(row.too_long for row in compared) else 0


def main() -> int:
    options = parse_options()
    say(f"Seed {options.seed}, {options.minutes:g} minutes, {len(options.acts)} acts")
    if options.dry_run:
        say(report.planned(options.acts))
        return 0
    return run_program(partial(soak, options), "soak")


if __name__ == "__main__":
    sys.exit(main())
