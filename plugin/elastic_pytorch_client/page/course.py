"""The course of a job on one axis of time: its group, what interrupted it, and a lane for each worker. Times are seconds since 1970."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from elastic_pytorch_client.page.history import GroupSize, History
from elastic_pytorch_client.page.rows import finite, seconds_of, tone
from elastic_pytorch_client.reading.interruption_phases import PHASE_NAMES, Interruption
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.reading.timeline import JobEvent

FUTURE = timedelta(minutes=5)  # clocks differ; what is later than that is a mistake of its author


def course_of(job: JobView, events: Sequence[JobEvent], history: History, now: datetime) -> dict[str, Any]:
    """The course of a job.

    Args:
        job: as it is now.
        events: about it, oldest first.
        history: what has been seen of it since the page's server began.
        now: the time of day.
    """
    events = [event for event in events if event.at <= now + FUTURE]
    sizes = group_sizes(events, history)
    interruptions = [_interruption(each) for each in job.recent_interruptions]
    end = job.completed or now
    told = [size.at for size in sizes] + [event.at for event in events]
    single = [each for each in job.recent_interruptions if each.count == 1]  # when the others began is not known
    told += [each.ended - timedelta(seconds=_length(each)) for each in single if each.ended]
    begin = min([*told, job.completed or job.started or now])
    return {
        "begin": seconds_of(begin),
        "end": seconds_of(max(end, begin + timedelta(seconds=1))),
        "ended": job.ended,
        "wanted": job.wanted,
        "sizes": [{"at": seconds_of(size.at), "workers": size.workers, "round": size.round} for size in sizes],
        "interruptions": interruptions,
        "events": [
            {"at": seconds_of(event.at), "reason": event.reason, "note": event.note, "warning": event.warning}
            for event in events
        ],
        "lanes": [
            {"index": index, "changes": [[seconds_of(at), state, tone(state)] for at, state in history.lanes[index]]}
            for index in sorted(history.lanes)
        ],
    }


def group_sizes(events: Sequence[JobEvent], history: History) -> list[GroupSize]:
    """The sizes of the group over time: those of rounds' events before it was seen, then what was seen."""
    since = history.sizes[0].at if history.sizes else None
    told = [
        GroupSize(event.at, event.workers, event.round)
        for event in events
        if event.round is not None and event.workers is not None and (since is None or event.at < since)
    ]
    shown: list[GroupSize] = []
    for size in [*told, *history.sizes]:
        if not shown or (size.workers, size.round) != (shown[-1].workers, shown[-1].round):
            shown.append(size)
    return shown


def _interruption(interruption: Interruption) -> dict[str, Any]:
    return {
        "ended": seconds_of(interruption.ended),
        "cause": interruption.cause,
        "count": interruption.count,
        "before": interruption.before,
        "after": interruption.after,
        "seconds": _length(interruption),
        "stepsLost": interruption.steps_lost,
        "round": interruption.round,
        "phases": [[PHASE_NAMES[p], seconds] for p, seconds in interruption.phases.items() if finite([seconds])],
    }


def _length(interruption: Interruption) -> float:
    return next(iter(finite([interruption.seconds])), 0.0)
