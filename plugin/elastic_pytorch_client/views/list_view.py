"""Jobs in a table, one line each."""

from collections.abc import Iterable, Sequence
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
    def column(title: str, importance: int, texts: Iterable[str]) -> Column:
        return Column(title, importance, list(map(Text, texts)))

    losses = ("" if (loss := job.progress.loss) is None else f"{loss:.4g}" for job in jobs)
    ages = (short(seconds_since(job.created, now)) if job.created else "" for job in jobs)
    states = [Text(f"{state_mark(job.state)} {job.state}", state_style(job.state)) for job in jobs]
    columns = [
        *([column("NAMESPACE", 0, (job.namespace for job in jobs))] if namespaces else []),
        column("NAME", 0, (job.name for job in jobs)),
        Column("STATE", 0, states),
        column("WORKERS", 0, map(ready_of_wanted, jobs)),
        column("WORLD", 6, (str(job.world) for job in jobs)),
        column("STEP", 1, map(how_far, jobs)),
        column("LOSS", 5, losses),
        column("GOODPUT", 4, (str(job.goodput) or "-" for job in jobs)),
        column("INTERRUPTIONS", 5, (str(job.interruptions) for job in jobs)),
        column("AGE", 3, ages),
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
