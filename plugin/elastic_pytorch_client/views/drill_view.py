"""A drill on the screen: what it will do, and what it has shown."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastic_pytorch_client.drill.faults import Fault, PlannedFault
from elastic_pytorch_client.drill.outcome import Outcome, what_to_set
from elastic_pytorch_client.reading.interruption_phases import name_slowest
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.views.interruption_table import InterruptionRow, interruption_table
from elastic_pytorch_client.views.widgets import BAD, BUSY, GOOD, MUTED

TITLES = {
    Fault.PROCESS: "a process is killed",
    Fault.POD: "a pod is deleted",
    Fault.NODE: "a node is drained",
    Fault.SCALE: "scaled by one",
}


def show_plan(job: JobView, planned: Sequence[PlannedFault]) -> RenderableType:
    """What a drill will do, and what that may cost."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for fault in planned:
        if fault.skipped:
            grid.add_row(Text(f"  {fault.fault}", MUTED), Text(f"left out: {fault.skipped}", BUSY))
        else:
            grid.add_row(Text(f"  {fault.fault}", "bold"), Text(fault.does))
            grid.add_row("", Text(f"may cost: {fault.cost}", MUTED))
    return Group(Text(f"{job.name}  {job.namespace}", "bold"), Text(f"  {_facts(job)}", MUTED), grid)


def _facts(job: JobView) -> str:
    """What decides on the cost."""
    sizes = f"{job.minimum} to {job.maximum} allowed" if job.elastic else "a fixed size"
    allowed = "" if job.max_failures is None else f" of {job.max_failures}"
    facts = [f"{job.size} workers train, {sizes}", f"{job.failures}{allowed} failures used"]
    if job.progress.commit_every_steps is not None:
        facts.append("trains with the training library")
    elif job.progress.checkpoint_step is not None:
        facts.append(f"checkpoint at step {job.progress.checkpoint_step}, now at {job.progress.step}")
    if job.last_interruption is not None and job.last_interruption.seconds is not None:
        facts.append(f"its last interruption took {job.last_interruption.seconds:.1f} s")
    return " · ".join(facts)


def show_outcomes(planned: Sequence[PlannedFault], outcomes: Sequence[Outcome]) -> RenderableType:
    """What a drill has shown: the cost of each fault, what was left out, and what to set."""
    rows = [row for outcome in outcomes for row in _rows(outcome)]
    parts: list[RenderableType] = [interruption_table(rows)] if rows else []
    for outcome in outcomes:
        if outcome.whole_seconds is not None:
            parts.append(
                Text(f"{TITLES[outcome.fault]}: all wanted workers trained {outcome.whole_seconds:.1f} s after", MUTED)
            )
    left_out = [fault for fault in (*planned, *(outcome.planned for outcome in outcomes)) if fault.skipped]
    parts += [Text(f"{fault.fault} was left out: {fault.skipped}", BUSY) for fault in left_out]
    if advice := what_to_set(outcomes):
        parts += [Text("\nWhat to set", "bold"), *(Text(f"- {line}") for line in advice)]
    broken = next((outcome for outcome in outcomes if outcome.error), None)
    if broken is not None:
        parts.append(Text(f"\nNOT RECOVERED from {broken.fault}: {broken.error}", f"bold {BAD}"))
        parts.append(Text("The drill has ended there, and has undone what it had changed."))
    elif done := [outcome for outcome in outcomes if not outcome.planned.skipped]:
        times = "once" if len(done) == 1 else f"{len(done)} times"
        parts.append(Text(f"\nIt was disturbed {times}, and trained again each time.", GOOD))
    return Group(*parts)


def _rows(outcome: Outcome) -> list[InterruptionRow]:
    return [
        InterruptionRow(
            TITLES[outcome.fault] if number == 0 else f"  then {seen.interruption.cause}",
            seen.before,
            seen.workers,
            seen.after_seconds,
            seen.interruption.seconds,
            seen.interruption.steps_lost,
            name_slowest(seen.interruption.phases, seen.interruption.slowest),
        )
        for number, seen in enumerate(outcome.interruptions)
    ]
