"""All jobs, alive: bars of how far they are, and sparklines of how they go."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from elastic_pytorch_client.durations import spell
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.views.job_table import Column, JobTable
from elastic_pytorch_client.views.list_view import name_columns, note, ready_of_wanted
from elastic_pytorch_client.views.widgets import ACCENT, BUSY, MUTED, progress_bar, sparkline, state_style

MAX_SAMPLES = 240
SPARK_WIDTH, BAR_WIDTH = 16, 14
SHOWN_METRICS = 2


@dataclass
class SparklineSamples:
    """What is remembered of a job for its sparklines, oldest first."""

    losses: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    speeds: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    last: tuple[int | None, float | None] = (None, None)

    def take(self, job: JobView) -> None:
        """Remembers what a job says of itself now, if that is news."""
        progress = job.progress
        if (progress.step, progress.loss) == self.last:
            return
        self.last = (progress.step, progress.loss)
        if progress.loss is not None:
            self.losses.append(progress.loss)
        if progress.steps_per_second is not None and job.world:
            self.speeds.append(progress.steps_per_second)


def show_top(
    jobs: Sequence[JobView], sparklines: Mapping[str, SparklineSamples], now: datetime, *, namespaces: bool, trouble: str = ""
) -> RenderableType:
    """The screen.

    Args:
        jobs: to show.
        sparklines: of each, by UID.
        now: the time of day.
        namespaces: whether to have a column for them.
        trouble: why what is shown may be old; empty: it is not.
    """
    ordered = sorted(jobs, key=_order)
    known = [sparklines.get(job.uid) or SparklineSamples() for job in ordered]
    columns = [
        *name_columns(ordered, namespaces=namespaces),
        Column("WORKERS", 0, list(map(_workers, ordered))),
        Column("PROGRESS", 1, list(map(_bar, ordered))),
        Column("LEFT", 3, list(map(_left, ordered))),
        Column("LOSS", 2, list(map(_loss, ordered)), "right"),
        Column("", 6, [Text(sparkline(seen.losses, SPARK_WIDTH), ACCENT) for seen in known], width=SPARK_WIDTH),
        Column("STEPS/S", 4, list(map(_speed, ordered)), "right"),
        Column("", 8, [Text(sparkline(seen.speeds, SPARK_WIDTH), ACCENT) for seen in known], width=SPARK_WIDTH),
        Column("INTERRUPTED", 7, list(map(_interrupted, ordered))),
    ]
    if any(job.progress.metrics for job in jobs):
        columns.append(Column("METRICS", 5, [Text(", ".join(job.progress.name_metrics(SHOWN_METRICS))) for job in ordered]))
    notes = [Text(f"{job.name}: ", BUSY).append(text, MUTED) for job in jobs if (text := note(job))]
    parts: list[RenderableType] = [_headline(jobs, now, trouble), Text(), JobTable(columns)]
    if notes:
        parts += [Text(), *notes]
    return Group(*parts)


def _headline(jobs: Iterable[JobView], now: datetime, trouble: str) -> Text:
    jobs = list(jobs)
    training = [job for job in jobs if job.world]
    text = Text().append(f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}", "bold")
    text.append(f", {len(training)} training with {sum(job.world for job in training)} processes", MUTED)
    text.append(f"   {now:%H:%M:%S} UTC", MUTED)
    return text.append(f"   {trouble}", BUSY) if trouble else text


def _bar(job: JobView) -> Text:
    progress = job.progress
    if progress.fraction is not None:
        return progress_bar(progress.fraction, BAR_WIDTH).append(f" {progress.fraction:>4.0%}", "default")
    return Text("-", MUTED) if progress.step is None else Text(f"step {progress.step}")


def _left(job: JobView) -> Text:
    return Text(spell(job.progress.seconds_left) if job.world and job.progress.seconds_left else "")


def _loss(job: JobView) -> Text:
    return Text("" if job.progress.loss is None else f"{job.progress.loss:.3f}")


def _speed(job: JobView) -> Text:
    speed = job.progress.steps_per_second
    return Text(f"{speed:.3g}" if job.world and speed is not None else "")


def _interrupted(job: JobView) -> Text:
    last = job.last_interruption
    seconds = f", last in {last.seconds:.1f} s" if last is not None and last.seconds is not None else ""
    return Text(f"{job.interruptions}{seconds}", MUTED)


def _workers(job: JobView) -> Text:
    """A block for each ready worker if they are few, and a dot for each that is missing."""
    count = ready_of_wanted(job)
    if count == "-":
        return Text(count, MUTED)
    if job.wanted > 8:
        return Text(count)
    style = state_style("Running") if job.ready >= job.wanted else BUSY
    ready = min(job.ready, job.wanted)
    return Text("■" * ready, style).append("·" * (job.wanted - ready), MUTED).append(f" {count}", "default")


def _order(job: JobView) -> tuple[int, str, str]:
    place = {"Running": 0, "Resizing": 0, "Pending": 1, "Suspending": 2, "Suspended": 2}.get(job.state, 3)
    return place, job.namespace, job.name
