"""A run's results, as tables and as the JSON that is kept. Pure, except for the prints."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from measure import markdown
from measure.figures import spread
from measure.program import say

from soak.perform import Hit
from soak.plan import Act, from_json
from soak.timeline import Violation, groups_of, kept_seconds
from soak.verdict import PERCENT, Seen, pauses, table

MOST_TIMES = 2.0  # by which a hostile tenant may make the pauses of other jobs longer
FIGURES = ("median", f"{PERCENT} %", "longest")


def pauses_by_job(seen: Seen) -> dict[str, Sequence[float]]:
    """For each job, the FIGURES of its pauses per fault, in seconds."""
    found: dict[str, list[float]] = defaultdict(list)
    for _, job, seconds in pauses(seen):
        found[job].append(seconds)
    return {job: spread(found[job], PERCENT) or () for job in sorted(found)}


def compare(
    now: Mapping[str, Sequence[float]], earlier: Mapping[str, Sequence[float]]
) -> list[tuple[str, bool]]:
    """Compares the figures of each job with earlier ones: a text, and whether it is too long."""
    found = list[tuple[str, bool]]()
    for job in (job for job in now if job in earlier):
        for figure, here, there in zip(FIGURES, now[job], earlier[job], strict=True):
            times = f"{here / there:.2f} times" if there else "not comparable with"
            too_long = here > MOST_TIMES * there
            more = f": more than {MOST_TIMES:g} times" if too_long else ""
            both = f"{here:.2f} s, {times} the {there:.2f} s of before{more}"
            found.append((f"{job}, {figure} of the pauses: {both}", too_long))
    return found


def same_run(earlier: Mapping[str, Any], jobs: Sequence[str], acts: Sequence[Act]) -> bool:
    same: bool = earlier["jobs"] == list(jobs) and from_json(earlier["acts"]) == tuple(acts)
    return "pauses" in earlier and same


AROUND_SECONDS = 60.0
PAUSE = (f"longest pause, s: {FIGURES[0]}", *FIGURES[1:])
COLUMNS = ("job", "state", "groups", "steps", "done again", "set-ups failed", "goodput", "as seen")


def planned(acts: Sequence[Act]) -> str:
    lines = []
    for number, act in enumerate(acts, 1):
        faults = " and ".join(
            f"{fault.kind}{f' for {fault.seconds:.0f} s' if fault.seconds else ''}"
            for fault in act.faults
        )
        lines.append(f"{number:3}  after {act.pause_seconds:4.1f} s: {faults}")
    return "\n".join(lines)


def to_json(seen: Seen, found: Sequence[Violation]) -> dict[str, Any]:
    return {
        "violations": [asdict(violation) for violation in found],
        "pauses": pauses_by_job(seen),
        "timeline": [
            asdict(hit)
            | {"kind": hit.kind.name, "jobs": sorted(hit.jobs), "pods": sorted(hit.pods)}
            for hit in seen.hits
        ],
        "groups": {
            job: [
                [g.number, g.first, g.last, g.world, g.first_at, g.last_at]
                for g in groups_of(told.steps)
            ]
            for job, told in seen.records.items()
        },
    }


def show(seen: Seen, found: Sequence[Violation], compared: Sequence[tuple[str, bool]]) -> None:
    kinds = [[kind.title, str(count), *_pauses(longest, 1)] for kind, count, longest in table(seen)]
    say(markdown.table(("what was done", "times", *PAUSE), kinds))
    by_job = pauses_by_job(seen)
    jobs = [[*_job(seen, job), *_pauses(by_job.get(job), 2)] for job in seen.records]
    say(markdown.table((*COLUMNS, *PAUSE), jobs))
    if seen.hostile is not None:
        counts = ", ".join(f"{act} {count:,}" for act, count in seen.hostile.items())
        say(f"The hostile tenant's acts since the first fault: {counts}")
    for text, too_long in compared:
        say(text, style="red" if too_long else None)
    for violation in found:
        say(f"NOT KEPT: {violation.rule}: {violation.job}: {violation.text}", style="red")
        for line in around(seen.hits, violation.at):
            say(f"    {line}")
    restarts = f"restarts of operators: {len(seen.restarts)}"
    say(f"{len(seen.hits)} faults, {len(found)} violations; {restarts}")


def _job(seen: Seen, job: str) -> list[str]:
    told, view = seen.records[job], seen.jobs[job]
    groups = groups_of(told.steps)
    last = max((group.last for group in groups), default=0)
    again = sum(group.last - group.first + 1 for group in groups) - last
    whole = sum(view.goodput.seconds.values())
    share = kept_seconds(groups) / whole if whole else 0.0
    counts = (str(len(groups)), str(last), str(again), str(len(told.failures)))
    return [job, view.state, *counts, str(view.goodput), f"{100 * share:.1f}%"]


def _pauses(values: Sequence[float] | None, digits: int) -> list[str]:
    return [f"{value:.{digits}f}" for value in values] if values else [markdown.NOTHING] * 3


def around(hits: Sequence[Hit], at: float) -> list[str]:
    near = [hit for hit in hits if hit.at - AROUND_SECONDS <= at <= hit.until + AROUND_SECONDS]
    return [f"{hit.at - at:+6.1f} to {hit.until - at:+6.1f} s: {hit.what}" for hit in near]
