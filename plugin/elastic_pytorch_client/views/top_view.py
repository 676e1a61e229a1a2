"""All jobs, alive: bars of how far they are, and sparklines of how they go."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastic_pytorch_client.durations import spell
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.views.list_view import note, ready_of_wanted
from elastic_pytorch_client.views.progress_bar import progress_bar
from elastic_pytorch_client.views.sparkline import sparkline
from elastic_pytorch_client.views.styles import ACCENT, BUSY, MUTED, state_mark, state_style

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
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    if namespaces:
        table.add_column("NAMESPACE", no_wrap=True)
    for title in ("NAME", "STATE", "WORKERS", "PROGRESS", "LEFT"):
        table.add_column(title, no_wrap=True)
    table.add_column("LOSS", no_wrap=True, justify="right")
    table.add_column("", no_wrap=True, width=SPARK_WIDTH)
    table.add_column("STEPS/S", no_wrap=True, justify="right")
    table.add_column("", no_wrap=True, width=SPARK_WIDTH)
    table.add_column("INTERRUPTED", no_wrap=True)
    metrics = any(job.progress.metrics for job in jobs)
    if metrics:
        table.add_column("METRICS", no_wrap=True)
    for job in sorted(jobs, key=_order):
        known = sparklines.get(job.uid) or SparklineSamples()
        named = [", ".join(job.progress.name_metrics(SHOWN_METRICS))] if metrics else []
        table.add_row(*([job.namespace] if namespaces else []), *_row(job, known), *named)
    notes = [Text(f"{job.name}: ", BUSY).append(text, MUTED) for job in jobs if (text := note(job))]
    parts: list[RenderableType] = [_headline(jobs, now, trouble), Text(), table]
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


def _row(job: JobView, known: SparklineSamples) -> list[Text | str]:
    progress = job.progress
    bar = Text("-", MUTED)
    if progress.fraction is not None:
        bar = progress_bar(progress.fraction, BAR_WIDTH).append(f" {progress.fraction:>4.0%}", "default")
    elif progress.step is not None:
        bar = Text(f"step {progress.step}")
    left = spell(progress.seconds_left) if job.world and progress.seconds_left else ""
    loss = "" if progress.loss is None else f"{progress.loss:.3f}"
    speed = f"{progress.steps_per_second:.3g}" if job.world and progress.steps_per_second is not None else ""
    last = job.last_interruption
    interrupted = str(job.interruptions)
    if last is not None and last.seconds is not None:
        interrupted += f", last in {last.seconds:.1f} s"
    return [
        job.name,
        Text(f"{state_mark(job.state)} {job.state}", state_style(job.state)),
        _workers(job),
        bar,
        left,
        loss,
        Text(sparkline(known.losses, SPARK_WIDTH), ACCENT),
        speed,
        Text(sparkline(known.speeds, SPARK_WIDTH), ACCENT),
        Text(interrupted, MUTED),
    ]


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
