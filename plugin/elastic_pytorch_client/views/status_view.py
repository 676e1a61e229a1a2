"""One job on one screen: progress, workers, conditions, events."""

from collections import Counter
from collections.abc import Container, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.goodput import Goodput
from elastic_pytorch_client.reading.history import HistoryEntry
from elastic_pytorch_client.reading.job_view import (
    Condition,
    JobView,
    Progress,
    RootCause,
    Worker,
)
from elastic_pytorch_client.reading.stragglers import slowest_by_worker
from elastic_pytorch_client.reading.text import finite, first_line, seconds_since, short, spell
from elastic_pytorch_client.reading.timeline import JobEvent
from elastic_pytorch_client.views.widgets import (
    BAD,
    BUSY,
    GOOD,
    MUTED,
    progress_bar,
    spark,
    state_mark,
    state_style,
)

BAR_WIDTH = 40
SHOWN_METRICS = 4
MAX_WORKERS, MAX_EVENTS = 32, 12
MAX_COLUMNS, COLUMN_WIDTH = 60, 4
NEWS_IF_TRUE = ("Degraded", "Resizing", "Suspended", "Failed")


def show_status(job: JobView, events: Sequence[JobEvent], now: datetime) -> RenderableType:
    parts: list[RenderableType] = [_headline(job, now)]
    if (how_far := _how_far(job)) is not None:
        parts.append(Padding(how_far, (0, 0, 0, 2)))
    parts += [Text(), _workers(job, now)]
    interruption = job.last_interruption
    if interruption is not None and interruption.slowest and not job.ended:
        parts.append(Text(f"  {describe_interruption(interruption)}", MUTED))
    if goodput := describe_goodput(job.goodput):
        parts.append(Text(f"  {goodput}", MUTED))
    if job.conditions:
        parts += [Text("\nConditions", "bold"), *_conditions(job, now)]
    if job.root_cause is not None:
        parts += _root_cause(job.root_cause)
    parts += _rounds(job)
    parts += [Text("\nTimeline", "bold"), _timeline(events, now)]
    return Group(*parts)


def describe_goodput(goodput: Goodput) -> str:
    if goodput.ratio is None:
        return ""
    return f"goodput {goodput}, lost {goodput.lost}" if goodput.lost else f"goodput {goodput}"


def describe_interruption(interruption: HistoryEntry) -> str:
    steps, lost = interruption.steps_lost, ""
    if steps:
        lost = f"; {steps} step{'' if steps == 1 else 's'} repeated"
    text = f"training resumed {interruption.seconds or 0.0:.1f} s after {interruption.cause}{lost}"
    slowest = interruption.slowest
    return f"{text}; the slowest phase was {slowest}" if slowest else text


def _headline(job: JobView, now: datetime) -> Text:
    text = Text().append(job.name, "bold").append(f"  {job.namespace}  ", MUTED)
    text.append(f"{state_mark(job.state)} {job.state}", f"bold {state_style(job.state)}")
    if job.ended and job.started and job.completed:
        ago = spell(seconds_since(job.completed, now))
        text.append(f"  after {spell(seconds_since(job.started, job.completed))}, {ago} ago", MUTED)
    elif job.started and not job.suspended:
        text.append(f"  for {spell(seconds_since(job.started, now))}", MUTED)
    return text


def _how_far(job: JobView) -> Text | None:
    progress = job.progress
    if progress.step is None:
        return None
    text = Text()
    if progress.fraction is not None:
        text.append_text(progress_bar(progress.fraction, BAR_WIDTH))
        text.append(f" {progress.fraction:.0%}  step {progress.step} of {progress.total}")
    else:
        text.append(f"step {progress.step}")
    trains, speed = job.world > 0, progress.steps_per_second
    if trains and progress.seconds_left:
        text.append(f", about {spell(progress.seconds_left)} left")
    facts = [f"loss {progress.loss:.4g}"] if progress.loss is not None else []
    facts += progress.name_metrics(SHOWN_METRICS)
    if trains and speed is not None:
        facts.append(f"{speed:.3g} steps/s")
    if progress.checkpoint_step is not None:
        facts.append(f"checkpoint at step {progress.checkpoint_step}")
    return text.append("\n" + " · ".join(facts), MUTED) if facts else text


def _workers(job: JobView, now: datetime) -> Tree:
    members = job.members
    if job.ended:
        standing = "the job has ended"
    elif job.suspended:
        standing = "none wanted while suspended"
    else:
        sizes = f" ({job.minimum} to {job.maximum})" if job.elastic else ", a fixed size"
        standing = f"{job.size if job.world else 0} train, {job.wanted} wanted{sizes}"
    label = Text().append("Workers", "bold").append(f"  {standing}")
    if job.described_spares and not (job.ended or job.suspended):
        label.append(f" · {job.described_spares}")
    if job.world:
        label.append(f" · world size {job.world} · round {job.round}", MUTED)
    tree = Tree(label, guide_style=MUTED)
    others = sorted((w for w in job.workers if w not in members), key=lambda w: (w.index, w.name))
    all_workers = [*members, *others]
    shown = all_workers
    if len(all_workers) > MAX_WORKERS:
        shown = _notable(all_workers, slowest_by_worker(job.stragglers), MAX_WORKERS)
    columns = [worker.name for worker in shown], [worker.node for worker in shown]
    widths = [max(map(len, texts), default=0) for texts in columns]
    for worker in shown:
        tree.add(_worker(job, now, worker, widths))
    rest = Counter({state: len(indexes) for state, indexes in job.unlisted.items()})
    rest.update(w.state for w in all_workers if w not in shown)
    if rest:
        counts = ", ".join(f"{count} more {state}" for state, count in rest.most_common())
        tree.add(Text(f"and {counts}", MUTED))
    if job.backend != names.BACKEND_OPERATOR and all_workers:
        unknown = f"torchrun ({job.backend}) assigns the ranks; the operator does not know them"
        tree.add(Text(unknown, MUTED))
    if not all_workers:
        tree.add(Text("none", MUTED))
    return tree


def _worker(job: JobView, now: datetime, worker: Worker, widths: Sequence[int]) -> Text:
    place = "trains" if worker in job.members else "waits"
    if worker.state == "Spare":
        place = "spare"
    elif worker.rank is not None:
        place = f"rank {worker.rank}"
    elif worker.state in ("Leaving", "Lost"):
        place = "gone"
    text = Text(f"{place:<8} ", "" if worker.rank is not None else MUTED)
    text.append(f"{worker.name:<{widths[0]}}  ")
    text.append(f"{worker.node or 'no node yet':<{max(widths[1], 11)}}  ", MUTED)
    # The status of an ended job keeps the last states of its workers.
    state, said = worker.state, worker.describe_state(now)
    if job.ended and state == "Running":
        state = said = "Ended"
    text.append(f"{state_mark(state)} {said}", state_style(state))
    if worker.rank is not None and job.progress.step is not None and job.world:
        text.append(f"  step {job.progress.step}", MUTED)
    slow = slowest_by_worker(job.stragglers).get(worker.name)
    if worker.rank is not None and slow is not None:
        text.append(f"  ▲ {slow.slowdown} times the median's work", BUSY)
    return text


def _notable(workers: Sequence[Worker], stragglers: Container[str], limit: int) -> list[Worker]:
    unwell = [w for w in workers if w.state not in ("Running", "Spare", "Succeeded")]
    slow = [w for w in workers if w.name in stragglers]
    chosen = {w.name for w in [*unwell, *slow, *workers][:limit]}
    return [w for w in workers if w.name in chosen]


def _conditions(job: JobView, now: datetime) -> list[RenderableType]:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column()
    grid.add_column(justify="right", no_wrap=True)
    for condition in (c for c in job.conditions if c.true or _explains(job, c)):
        mark, style = _sign(condition)
        age = short(seconds_since(condition.since, now)) if condition.since else ""
        name = f"{_whether(condition)}{condition.type}"
        said = first_line(condition.message) or condition.reason
        text = Text(said, "" if condition.true else MUTED)
        grid.add_row(Text(f"  {mark} {name}", style), text, Text(age, MUTED))
    return [grid]


def _whether(condition: Condition) -> str:
    if condition.unknown:
        return "perhaps "
    return "" if condition.true else "not yet " if condition.type == "Suspended" else "not "


def _explains(job: JobView, condition: Condition) -> bool:
    """Whether a false condition says why nothing trains, or what a suspension waits for."""
    if condition.type == "Running":
        return not job.ended
    return condition.type == "Suspended" and job.stopping


def _sign(condition: Condition) -> tuple[str, str]:
    if condition.type == "Failed" and condition.true:
        return "✗", BAD
    if condition.true:
        return ("▲", BUSY) if condition.type in NEWS_IF_TRUE else ("●", GOOD)
    return "○", MUTED


def _root_cause(cause: RootCause) -> list[RenderableType]:
    title = Text().append("\nLast failure", "bold").append(f"  {cause.where_and_how}", MUTED)
    lines = [line for line in cause.message.rstrip().splitlines() if line.strip()][-6:]
    text = Text()
    for number, line in enumerate(lines):
        last = number == len(lines) - 1
        text.append(f"  {line}" + ("" if last else "\n"), BAD if last else MUTED)
    return [title, text]


def _rounds(job: JobView) -> list[RenderableType]:
    entries = job.history[-MAX_COLUMNS:]
    if len(entries) < 2:
        return []
    points: list[HistoryEntry | Progress] = [*entries, job.progress]
    losses = [finite(point.loss) for point in points]
    speeds = [finite(point.steps_per_second) for point in points]
    sizes, marks, size, width = [], "", 0, max(1, min(COLUMN_WIDTH, MAX_COLUMNS // len(losses)))
    for column, entry in enumerate(entries):
        size = entry.workers if entry.workers is not None else size
        sizes.append(float(size))
        if entry.round and len(marks) <= column * width:
            marks = f"{marks.ljust(column * width)}{entry.round} "
    sizes.append(float(size if job.ended else job.size if job.world else 0))
    text = Text()
    rows = (("loss", losses, None), ("steps/s", speeds, 0.0), ("workers", sizes, 0.0))
    for name, values, floor in rows:
        if (known := [value for value in values if value is not None]) and len(known) > 1:
            text.append(f"  {name:<8}", MUTED).append(spark(values, width, floor))
            text.append(f"  {known[0]:.3g} to {known[-1]:.3g}\n", MUTED)
    return [Text("\nRounds", "bold"), text.append(f"  round   {marks.rstrip()}", MUTED)]


def _timeline(events: Sequence[JobEvent], now: datetime) -> RenderableType:
    if not events:
        return Text("  no events; Kubernetes keeps them for an hour", MUTED)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for event in events[-MAX_EVENTS:]:
        ago = Text(f"  {short(seconds_since(event.at, now))} ago", MUTED)
        grid.add_row(ago, Text(event.reason, _event_style(event)), Text(first_line(event.note)))
    if len(events) > MAX_EVENTS:
        return Group(Text(f"  {len(events) - MAX_EVENTS} earlier events", MUTED), grid)
    return grid


def _event_style(event: JobEvent) -> str:
    if event.warning:
        return BAD if event.reason == names.JOB_FAILED else BUSY
    return GOOD if event.reason in (names.TRAINING_RESUMED, names.JOB_COMPLETED) else ""
