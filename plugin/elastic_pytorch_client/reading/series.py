"""How a training went over time, put together from what is left of it: the status's history, events, and perhaps logs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.job_view import JobView, parse_number, parse_time
from elastic_pytorch_client.reading.timeline import JobEvent

# `step 12/800  loss 3.21`, `step=12 loss=3.21`, `Step: 12, Loss: 3.21`, `{"step": 12, "loss": 3.21}`
_STEP = re.compile(r"""\b(?:global_?)?step["']?\s*[=:]?\s*(\d+)""", re.IGNORECASE)
_LOSS = re.compile(r"""\b(?:train(?:ing)?[_ ])?loss["']?\s*[=:]?\s*([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)""", re.IGNORECASE)

RESIZES = (names.WORKER_JOINED, names.SCALED_DOWN, names.EVICTED)


@dataclass(frozen=True, slots=True)
class Sample:
    """What was known at a moment; None: not known."""

    at: datetime
    step: int | None = None
    loss: float | None = None
    world: int | None = None


@dataclass(frozen=True, slots=True)
class Recovered:
    """A moment at which the group trained again.

    Attributes:
        at: when it did.
        cause: one word; empty if only that it did is known.
        seconds: what it took, None if unknown.
    """

    at: datetime
    cause: str = ""
    seconds: float | None = None

    @property
    def resized(self) -> bool:
        """Whether the group was made larger or smaller on purpose, and nothing had failed."""
        return self.cause in RESIZES


@dataclass(frozen=True, slots=True)
class Series:
    """A training over time, oldest first.

    Attributes:
        samples: what was known at each moment.
        recoveries: when a group trained again.
        suspensions: from when to when the job was suspended.
    """

    samples: tuple[Sample, ...] = ()
    recoveries: tuple[Recovered, ...] = ()
    suspensions: tuple[tuple[datetime, datetime], ...] = ()

    @property
    def losses(self) -> list[tuple[datetime, float]]:
        """When each loss was seen."""
        return [(s.at, s.loss) for s in self.samples if s.loss is not None]

    @property
    def worlds(self) -> list[tuple[datetime, int]]:
        """From when on the group had each size."""
        return [(s.at, s.world) for s in self.samples if s.world is not None]

    @property
    def steps(self) -> list[tuple[datetime, int]]:
        """When each step was seen."""
        return [(s.at, s.step) for s in self.samples if s.step is not None]

    @property
    def speeds(self) -> list[tuple[datetime, float]]:
        """Steps per second between one sample and the next; steps that were done again make none."""
        pairs = zip(self.steps, self.steps[1:], strict=False)
        spans = [(to, (later - earlier) / (to - at).total_seconds()) for (at, earlier), (to, later) in pairs if to > at]
        return [(at, speed) for at, speed in spans if speed >= 0]


def gather(job: JobView, events: Sequence[JobEvent], log_lines: Iterable[str] = (), now: datetime | None = None) -> Series:
    """Returns everything that is known of a job's training.

    Args:
        job: with its `status.history`.
        events: its events. Kubernetes keeps them for an hour; the history reaches back further, but is coarser.
        log_lines: of its workers, each with a timestamp in front: what they say of steps and losses.
        now: when the job was read; None: leave out what it says of this moment.
    """
    samples, recoveries = _of_history(job.history, job.completed or now)
    processes = _processes_of_a_worker(job)
    if events:
        # Of the time that events tell of, they tell it to the second.
        recoveries = [r for r in recoveries if r.at < events[0].at]
        samples = [Sample(s.at, s.step, s.loss, s.world if s.at < events[0].at else None) for s in samples]
    for event in events:
        if event.round is not None:
            samples.append(Sample(event.at, world=(event.workers or 0) * processes))
        elif event.reason == names.JOB_SUSPENDED:
            samples.append(Sample(event.at, world=0))
        elif event.seconds is not None:
            recoveries.append(Recovered(event.at, event.cause, event.seconds))
    samples += samples_of_log(log_lines)
    moment = job.completed or now
    if moment is not None and (job.world or job.completed):
        samples.append(Sample(moment, job.progress.step, job.progress.loss, None if job.completed else job.world))
    return Series(
        tuple(sorted(samples, key=lambda s: s.at)),
        tuple(sorted(recoveries, key=lambda r: r.at)),
        _suspensions(events, moment),
    )


def _suspensions(events: Sequence[JobEvent], until: datetime | None) -> tuple[tuple[datetime, datetime], ...]:
    """From each suspension to the next group that trains, as far as events tell."""
    spans, since = [], None
    for event in events:
        if event.reason == names.JOB_SUSPENDED and since is None:
            since = event.at
        elif since is not None and event.workers:
            spans.append((since, event.at))
            since = None
    if since is not None and until is not None and until > since:
        spans.append((since, until))
    return tuple(spans)


def samples_of_log(lines: Iterable[str]) -> list[Sample]:
    """What log lines say of steps and losses; lines that say nothing of both make none."""
    samples = []
    for line in lines:
        stamp, _, text = line.partition(" ")
        step, loss = _STEP.search(text), _LOSS.search(text)
        at = parse_time(stamp) if step and loss else None
        if at and step and loss:
            samples.append(Sample(at, int(step[1]), float(loss[1])))
    return samples


def _of_history(history: Mapping[str, Any], latest: datetime | None) -> tuple[list[Sample], list[Recovered]]:
    since, interval = parse_time(history.get("since")), parse_number(history.get("intervalSeconds"))
    if since is None or not interval:
        return [], []
    samples, recoveries, before = [], [], 0.0
    columns = [str(history.get(name, "")).split() for name in ("steps", "losses", "worlds", "recoveries")]
    for place, row in enumerate(zip(*columns, strict=False)):
        step, loss, world, recovered = map(parse_number, row)
        at = since + timedelta(seconds=interval * (place + 1))  # an entry is what was known last of its interval
        at = min(at, latest) if latest else at
        if place == 0 and world is not None:
            samples.append(Sample(since, world=int(world)))
        samples.append(Sample(at, None if step is None else int(step), loss, None if world is None else int(world)))
        if recovered is not None and recovered > before:
            recoveries.append(Recovered(at))
            before = recovered
    return samples, recoveries


def _processes_of_a_worker(job: JobView) -> int:
    members = job.size
    return max(1, job.world // members) if members and job.world else 1
