"""The timeline of a job: group, loss, speed, interruptions, events; in seconds since 1970."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from elastic_pytorch_client.page.rows import seconds_of
from elastic_pytorch_client.reading.history import HistoryEntry, name_phase
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.reading.text import finite
from elastic_pytorch_client.reading.timeline import JobEvent

MAX_SECONDS = 1e9
MAX_EVENTS = 500  # the newest
FUTURE = timedelta(minutes=5)  # clocks differ; what is later is a mistake


def timeline_of(job: JobView, events: Sequence[JobEvent], now: datetime) -> dict[str, Any]:
    events = [event for event in events if event.at <= now + FUTURE][-MAX_EVENTS:]
    end = job.completed or now
    times = [entry.at for entry in job.history if entry.at] + [event.at for event in events]
    begin = min([*times, job.completed or job.started or now])
    speed = job.progress.steps_per_second if job.world else None
    present = HistoryEntry(end, loss=job.progress.loss, steps_per_second=speed)
    return {
        "begin": seconds_of(begin),
        "end": seconds_of(max(end, begin + timedelta(seconds=1))),
        "wanted": job.wanted,
        "sizes": group_sizes(job),
        "losses": _points((*job.history, present), lambda entry: entry.loss),
        "speeds": _points((*job.history, present), lambda entry: entry.steps_per_second),
        "interruptions": [_interruption(each) for each in job.recent_interruptions],
        "events": [
            {
                "at": seconds_of(event.at),
                "reason": event.reason,
                "note": event.note,
                "warning": event.warning,
            }
            for event in events
        ],
    }


def group_sizes(job: JobView) -> list[dict[str, Any]]:
    """The workers and the round after each change of the group, with 0 for a standstill."""
    sizes = []
    for entry in job.history:
        if entry.at is None or entry.workers is None:
            continue
        # Of several interruptions, only the last time is known.
        if entry.seconds is not None and entry.count == 1:
            stopped = seconds_of(entry.at - timedelta(seconds=_length(entry)))
            sizes.append({"at": stopped, "workers": 0, "round": entry.round})
        sizes.append({"at": seconds_of(entry.at), "workers": entry.workers, "round": entry.round})
    running = job.condition("Running")
    if not job.world and running is not None and running.since is not None:
        sizes.append({"at": seconds_of(running.since), "workers": 0, "round": job.round})
    return sizes


def _points(
    entries: Sequence[HistoryEntry], value: Callable[[HistoryEntry], float | None]
) -> list[list[float | None]]:
    dated = ((seconds_of(entry.at), finite(value(entry))) for entry in entries if entry.at)
    return [[at, known] for at, known in dated if known is not None]


def _interruption(interruption: HistoryEntry) -> dict[str, Any]:
    phases = interruption.phases.items()
    return {
        "ended": seconds_of(interruption.at),
        "cause": interruption.cause,
        "count": interruption.count,
        "before": interruption.before,
        "after": interruption.workers,
        "seconds": _length(interruption),
        "stepsLost": interruption.steps_lost,
        "round": interruption.round,
        "phases": [[name_phase(p), s] for p, s in phases if finite(s) is not None],
    }


def _length(interruption: HistoryEntry) -> float:
    return min(finite(interruption.seconds) or 0.0, MAX_SECONDS)
