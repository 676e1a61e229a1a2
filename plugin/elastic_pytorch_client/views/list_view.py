"""Jobs in a table, one line each."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.reading.text import first_line, seconds_since, short
from elastic_pytorch_client.views.job_table import Column, JobTable
from elastic_pytorch_client.views.widgets import MUTED, state_mark, state_style


def show_list(
    jobs: Sequence[JobView], now: datetime, *, namespaces: bool, wide: bool = False
) -> RenderableType:
    losses = ("" if (loss := job.progress.loss) is None else f"{loss:.4g}" for job in jobs)
    ages = (short(seconds_since(job.created, now)) if job.created else "" for job in jobs)
    states = [Text(f"{state_mark(job.state)} {job.state}", state_style(job.state)) for job in jobs]
    places = [Column("NAMESPACE", 0, [Text(job.namespace) for job in jobs])] if namespaces else []
    columns = [
        *places,
        Column("NAME", 0, [Text(job.name) for job in jobs]),
        Column("STATE", 0, states),
        Column("WORKERS", 0, [Text(ready_of_wanted(job)) for job in jobs]),
        Column("WORLD", 6, [Text(str(job.world)) for job in jobs]),
        Column("STEP", 1, [Text(how_far(job)) for job in jobs]),
        Column("LOSS", 5, list(map(Text, losses))),
        Column("GOODPUT", 4, [Text(str(job.goodput) or "-") for job in jobs]),
        Column("INTERRUPTIONS", 5, [Text(str(job.interruptions)) for job in jobs]),
        Column("AGE", 3, list(map(Text, ages))),
        Column("NOTE", 7, [Text(note(job), MUTED) for job in jobs]),
    ]
    notes = [
        Text(f"{job.name}: ", "bold", no_wrap=True, overflow="ellipsis").append(text, MUTED)
        for job in jobs
        if (text := note(job))
    ]
    return JobTable(columns, notes, gap=3, wide=wide)


def ready_of_wanted(job: JobView) -> str:
    """The ready of the wanted workers, as `2/4`; an ended or suspended job wants none."""
    return "-" if job.ended or (job.suspended and not job.ready) else f"{job.ready}/{job.wanted}"


def how_far(job: JobView) -> str:
    """The step, of how many, as `431/800 (54%)`."""
    progress = job.progress
    if progress.step is None:
        return "-"
    if progress.fraction is None:
        return str(progress.step)
    return f"{progress.step}/{progress.total} ({progress.fraction:.0%})"


def note(job: JobView) -> str:
    for type_ in ("Failed", "Degraded"):
        condition = job.condition(type_)
        if condition is not None and condition.true:
            return first_line(condition.message) or condition.reason
    if job.stopping:
        return "its workers save and stop"
    running = job.condition("Running")
    if job.state == "Pending" and running is not None:
        return first_line(running.message) or running.reason
    return "" if job.seen or job.ended else "the operator has not seen its newest spec yet"
