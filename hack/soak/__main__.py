"""Makes random faults to jobs of all sorts on the kind cluster, and checks the promises.

The exit status is 0 if every promise was kept. Seed and length decide which faults come when;
--replay repeats the faults of an earlier run.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from functools import partial

from elastic_pytorch_local.faults.watcher import Waited
from measure.kind_cluster import FILES, ROOT
from measure.program import names_of, new_parser, say
from measure.program import run as run_program

from soak import plan, report
from soak.jobs import SORTS, USUAL
from soak.plan import KINDS, SETTLED
from soak.run import run
from soak.verdict import violations

SETTLED_ALIAS = "settled"
HOSTILE = "beside a tenant that does everything wrong in its namespaces"
COMPARE = (
    "the report of the same run without --hostile: fails if a job's pauses are more than "
    f"{report.MOST_TIMES:g} times those"
)
RESULTS = FILES / "soak"


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser, report_file = new_parser("soak", __doc__), argparse.FileType()
    add = parser.add_argument
    add("--minutes", type=float, default=10, help="of faults (default: %(default)s)")
    seed = "of all that is random (default: the time)"
    add("--seed", type=int, default=int(time.time()), help=seed)
    jobs = f"of {', '.join(SORTS)} (default: {', '.join(USUAL)})"
    add("--jobs", metavar="a,b", type=names_of(SORTS), default=list(USUAL), help=jobs)
    settled = "those that leave the operator and the API server alone"
    kinds = f"of {', '.join(KINDS)}; {SETTLED_ALIAS}: {settled}"
    add("--faults", metavar="a,b", type=_kinds, default=list(KINDS), help=kinds)
    longest = "seconds that a fault lasts (default: %(default)s)"
    add("--longest", type=float, default=90, help=longest)
    replayed = "the report of the run to be made again"
    add("--replay", metavar="FILE", type=report_file, help=replayed)
    add("--hostile", action="store_true", help=HOSTILE)
    add("--compare", metavar="FILE", type=report_file, help=COMPARE)
    add("--dry-run", action="store_true", help="only print the faults")
    options = parser.parse_args(arguments)
    made = [kind for name in options.faults if (kind := KINDS[name]).job in ("", *options.jobs)]
    if not made:
        parser.error("none of these faults is made to any of these jobs")
    options.acts = plan.draw(options.seed, 60 * options.minutes, made, options.longest)
    if options.replay:
        earlier = json.load(options.replay)
        options.seed, options.minutes = earlier["seed"], earlier["minutes"]
        options.jobs = earlier["jobs"]
        options.acts = plan.from_json(earlier["acts"])
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

    sorts, seconds = [SORTS[name] for name in options.jobs], 60 * options.minutes
    try:
        seen = await run(options.acts, sorts, seconds, tell, hostile=options.hostile)
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
        "acts": [asdict(act) for act in options.acts],
    }
    file.write_text(json.dumps(entry | report.to_json(seen, found), indent=1) + "\n")
    compared = []
    if options.earlier:
        compared = report.compare(report.pauses_by_job(seen), options.earlier["pauses"])
    report.show(seen, found, compared)
    say(f"{file.relative_to(ROOT)}  (--replay makes the same faults again)")
    return 1 if found or any(too_long for _, too_long in compared) else 0


def main() -> int:
    options = parse_options()
    say(f"Seed {options.seed}, {options.minutes:g} minutes, {len(options.acts)} acts")
    if options.dry_run:
        say(report.planned(options.acts))
        return 0
    return run_program(partial(soak, options), "soak")


if __name__ == "__main__":
    sys.exit(main())
