"""Replays losses and reclaimed nodes to one training in several jobs on the kind cluster, and says what share of the time each trains.

The same events come at the same times to each job, one job after another. Times that can be shortened are: set-ups, checkpoints' intervals
and the time between events. docs/evidence/benchmarks.md says how what was measured becomes the ratio at the real rate.
"""

import argparse
import shutil
import sys
from functools import partial

from measure.kind_cluster import FILES, ROOT
from measure.program import commit_of_checkout, complain, names_of, new_parser, say, session
from measure.program import run as run_program

from replay import report, run
from replay.jobs import JOBS, SCRIPTS
from replay.player import TROUBLE, Player
from replay.traces import TRACES

FOLDER = FILES / "trace"
PAGE = ROOT / "docs" / "evidence" / "benchmarks.md"


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = new_parser("replay", __doc__)
    parser.add_argument("--minutes", type=float, default=1.75, help="of each trace, for each job (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the traces (default: %(default)s)")
    parser.add_argument("--only", metavar="a,b", type=names_of(JOBS), default=list(JOBS), help=f"of {', '.join(JOBS)}")
    parser.add_argument("--traces", metavar="a,b", type=names_of(TRACES), default=list(TRACES), help=f"of {', '.join(TRACES)}")
    parser.add_argument("--docs", action="store_true", help="only write the earlier results into docs/evidence/benchmarks.md")
    return parser.parse_args(arguments)


async def measure(options: argparse.Namespace) -> int:
    """Replays the traces; the results of each job are on disk as soon as they are known. Returns the exit status."""
    commit, seconds = commit_of_checkout(), 60 * options.minutes
    try:
        async with session("trace", SCRIPTS, say) as made:
            player = Player(made.driver, made.folder, made.nodes, say)
            await player.heal()  # an earlier run may have been killed
            for trace in (TRACES[name] for name in options.traces):
                for job in (JOBS[name] for name in options.only):
                    say(f"{trace.name}, {job.name}:")
                    seen = await player.play(trace, job, seed=options.seed, seconds=seconds, commit=commit)
                    run.write(FOLDER, seen)
                    say(f"  {report.describe(seen)}")
                    shutil.rmtree(made.folder / job.name, ignore_errors=True)
    except TROUBLE as trouble:
        say(f"FAILED: {type(trouble).__name__}: {trouble}")
        show()
        return 2
    return show()


def show() -> int:
    kept = run.read_all(FOLDER)
    say(report.tables(kept))
    return complain(report.complaints(kept))


def main() -> int:
    options = parse_options()
    if options.docs:
        PAGE.write_text(report.page(PAGE.read_text(), run.read_all(FOLDER)))
        return 0
    return run_program(partial(measure, options), "trace")


if __name__ == "__main__":
    sys.exit(main())
