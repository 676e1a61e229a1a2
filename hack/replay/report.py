"""What the runs have shown: the tables, and what is not as it should be. Pure."""

from collections.abc import Sequence

from measure import markdown

from replay.account import Account, account
from replay.jobs import JOBS
from replay.run import Run
from replay.traces import TRACES, Trace

BEGIN, END = "<!-- trace: written by `make trace ARGS=--docs` -->\n", "<!-- end of trace -->\n"
AWAY_SECONDS = 600.0  # in the column of a node for which there is no other
HEAD = (
    "job",
    "at the real rate",
    f"with no other node for {AWAY_SECONDS / 60:.0f} min",
    "an event costs, real seconds",
    "as replayed",
    "an event costs, measured seconds",
    "stands still",
    "repeats",
    "step",
)


def accounts(runs: Sequence[Run]) -> dict[str, dict[str, Account]]:
    """The accounts by trace and job, in the order of these; runs without one are left out."""
    found: dict[str, dict[str, Account]] = {trace: {} for trace in TRACES}
    for name in JOBS:
        for run in runs:
            if run.job == name and not run.error:
                try:
                    found[run.trace][name] = account(run, AWAY_SECONDS)
                except ValueError:
                    continue  # `complaints` names it
    return {trace: jobs for trace, jobs in found.items() if jobs}


def tables(runs: Sequence[Run]) -> str:
    """The tables of all traces in Markdown, each with its seed, factor and commit."""
    shown = []
    for name, jobs in accounts(runs).items():
        trace = TRACES[name]
        one = next(run for run in runs if run.trace == name and run.job in jobs)
        commits = sorted({run.commit for run in runs if run.trace == name and run.job in jobs})
        shown += [f"**{trace.title}**", "", markdown.table(HEAD, [_row(JOBS[job].title, found) for job, found in jobs.items()])]
        shown += [f"Seed {one.seed}, {one.factor:,.0f} times as fast as in reality, commit {', '.join(commits)}.", ""]
    return "\n".join(shown)


def page(text: str, runs: Sequence[Run]) -> str:
    """Returns a page with the tables between its two markers; raises ValueError if it lacks them."""
    return markdown.page(text, BEGIN, END, tables(runs))


def complaints(runs: Sequence[Run]) -> list[str]:
    said = [f"{run.trace}, {run.job}: {run.error}" for run in runs if run.error]
    found = accounts(runs)
    said += [
        f"{run.trace}, {run.job}: too few steps or events"
        for run in runs
        if not run.error and run.job not in found.get(run.trace, {})
    ]
    for name, jobs in found.items():
        said += [complaint for job, each in jobs.items() if (complaint := _below_goal(TRACES[name], job, each))]
    return said


def _below_goal(trace: Trace, job: str, found: Account) -> str:
    if not JOBS[job].library or found.real_ratio >= trace.goal:
        return ""
    return f"{trace.name}, {job}: {_percent(found.real_ratio)} at the real rate, the goal is {_percent(trace.goal)}"


def _row(title: str, found: Account) -> list[str]:
    measured = {name: [getattr(cost, name) for cost in found.costs] for name in ("lost", "stopped", "repeated")}
    return [
        title,
        f"**{_percent(found.real_ratio)}**",
        _percent(found.scarce_ratio),
        markdown.spread(found.real),
        _percent(found.ratio),
        *(markdown.spread(values) for values in measured.values()),
        f"{found.step_seconds:.3f}",
    ]


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"


def describe(run: Run) -> str:
    if run.error:
        return f"FAILED: {run.error}"
    try:
        found = account(run, AWAY_SECONDS)
    except ValueError as error:
        return f"FAILED: {error}"
    return f"{_percent(found.ratio)} as replayed, {_percent(found.real_ratio)} at the real rate"
