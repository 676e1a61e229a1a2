"""Jobs in a table, one line each."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from elastic_pytorch_client.durations import seconds_since, short
from elastic_pytorch_client.reading.first_line import first_line
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.views.styles import MUTED, state_mark, state_style


def show_list(jobs: Sequence[JobView], now: datetime, *, namespaces: bool) -> RenderableType:
    """The table.

    Args:
        jobs: in the order to show them.
        now: the time of day.
        namespaces: whether to have a column for them.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold", expand=True)
    if namespaces:
        table.add_column("NAMESPACE", no_wrap=True)
    for title in ("NAME", "STATE", "WORKERS", "WORLD", "STEP", "LOSS", "INTERRUPTIONS", "AGE"):
        table.add_column(title, no_wrap=True)
    table.add_column("NOTE", no_wrap=True, overflow="ellipsis", ratio=1)
    for job in jobs:
        state = Text(f"{state_mark(job.state)} {job.state}", state_style(job.state))
        loss = "" if job.progress.loss is None else f"{job.progress.loss:.4g}"
        row: list[str | Text] = [
            job.name,
            state,
            ready_of_wanted(job),
            str(job.world),
            how_far(job),
            loss,
            str(job.interruptions),
        ]
        age = short(seconds_since(job.created, now)) if job.created else ""
        table.add_row(*([job.namespace] if namespaces else []), *row, age, Text(note(job), MUTED))
    return table


def ready_of_wanted(job: JobView) -> str:
    """The ready workers and how many are wanted, as `2/4`; a job that has ended or is suspended wants none."""
    return "-" if job.ended or (job.suspended and not job.ready) else f"{job.ready}/{job.wanted}"


def how_far(job: JobView) -> str:
    """The step, of how many, as `431/800 (54%)`."""
    progress = job.progress
    if progress.step is None:
        return "-"
    return (
        f"{progress.step}/{progress.total} ({progress.fraction:.0%})" if progress.fraction is not None else str(progress.step)
    )


def note(job: JobView) -> str:
    """What is wrong with a job, in one line; empty if nothing is."""
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
