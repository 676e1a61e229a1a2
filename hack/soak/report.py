"""What a run has shown: as tables, and as the JSON that is kept. Pure, but for the console."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from elastic_pytorch_client.reading.goodput import Goodput
from elastic_pytorch_local.faults.engine import Hit
from elastic_pytorch_local.faults.plan import Act
from elastic_pytorch_local.faults.steps import groups_of, kept_seconds
from rich.console import Console
from rich.table import Table

from soak.pauses import Compared, pauses_by_job
from soak.timeline import Violation
from soak.verdict import Seen, table

AROUND_SECONDS = 60.0  # of the timeline, around a violation


def planned(acts: Sequence[Act]) -> str:
    lines = []
    for number, act in enumerate(acts, 1):
        faults = " and ".join(f"{fault.kind}{f' for {fault.seconds:.0f} s' if fault.seconds else ''}" for fault in act.faults)
        lines.append(f"{number:3}  after {act.pause_seconds:4.1f} s: {faults}")
    return "\n".join(lines)


def to_json(seen: Seen, found: Sequence[Violation]) -> dict[str, Any]:
    """What is kept of a run: for --compare, and to understand a violation."""
    groups = {
        job: [[g.number, g.first, g.last, g.world, round(g.first_at, 1), round(g.last_at, 1)] for g in groups_of(steps)]
        for job, steps in seen.steps.items()
    }
    return {
        "violations": [asdict(violation) for violation in found],
        "pauses": pauses_by_job(seen),
        "timeline": [
            asdict(hit) | {"kind": hit.kind.name, "jobs": sorted(hit.jobs), "pods": sorted(hit.pods)} for hit in seen.hits
        ],
        "groups": groups,
        "statuses": {job: [[round(s.at, 1), s.state, s.world] for s in seen.statuses[job]] for job in seen.steps},
        "ends": [asdict(end) for end in seen.ends],
    }


def show(console: Console, seen: Seen, found: Sequence[Violation], compared: Sequence[Compared] = ()) -> None:
    """Prints the tables, and for each violation what was done around it."""
    console.print(kinds_table(seen))
    console.print(jobs_table(seen))
    console.print(pauses_table(seen))
    if seen.hostile is not None:
        counts = ", ".join(f"{act} {count:,}" for act, count in seen.hostile.items())
        console.print(f"The hostile tenant's acts since the first fault: {counts}", soft_wrap=True)
    for row in compared:
        console.print(row.text, style="red" if row.too_long else None, markup=False, soft_wrap=True)
    for violation in found:
        console.print(
            f"NOT KEPT: {violation.rule}: {violation.job}: {violation.text}", style="red", markup=False, soft_wrap=True
        )
        for line in around(seen.hits, violation.at):
            console.print(f"    {line}", markup=False, soft_wrap=True)
    console.print(f"{len(seen.hits)} faults, {len(found)} violations; restarts of operators: {len(seen.restarts)}")


def kinds_table(seen: Seen) -> Table:
    shown = Table("what was done", "times", "pause: median", "90 %", "longest", title="Longest pause of each job, in seconds")
    for row in table(seen):
        shown.add_row(row.kind.title, str(row.count), *(f"{value:.1f}" for value in row.pauses or ()))
    return shown


def jobs_table(seen: Seen) -> Table:
    shown = Table("job", "state", "groups", "steps", "done again", "set-ups failed", "goodput", "as seen")
    for job, steps in seen.steps.items():
        groups = groups_of(steps)
        last = max((group.last for group in groups), default=0)
        again = sum(group.last - group.first + 1 for group in groups) - last
        failed = len(seen.set_up_failures.get(job, ()))
        goodput = seen.goodput.get(job, Goodput())
        share = kept_seconds(groups) / whole if (whole := sum(goodput.seconds.values())) else 0.0
        figures = (str(len(groups)), str(last), str(again), str(failed), str(goodput), f"{100 * share:.1f}%")
        shown.add_row(job, seen.states.get(job, "-"), *figures)
    return shown


def pauses_table(seen: Seen) -> Table:
    shown = Table(
        "job", "median", "90 %", "longest", title="Longest pause of each job by each fault that it was made to, in seconds"
    )
    for job, values in pauses_by_job(seen).items():
        shown.add_row(job, *(f"{value:.2f}" for value in values))
    return shown


def around(hits: Sequence[Hit], at: float) -> list[str]:
    near = [hit for hit in hits if hit.at - AROUND_SECONDS <= at <= hit.until + AROUND_SECONDS]
    return [f"{hit.at - at:+6.1f} to {hit.until - at:+6.1f} s: {hit.what}" for hit in near]
