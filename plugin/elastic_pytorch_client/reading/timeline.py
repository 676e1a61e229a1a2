"""A job's events, oldest first, with what their notes say of rounds and interruptions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.job_view import parse_time

# As the operator words them (planning/reporting/events.py).
_ROUND = re.compile(r"^Round (\d+), (?:\d+ -> )?(\d+) workers(?:: (.*))?$", re.DOTALL)
_RECOVERED = re.compile(r"^Trains again with (\d+) workers ([0-9.]+) s after (\w+)(?:, (\d+) steps? )?")


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event.

    Attributes:
        at: when it happened.
        reason: one word.
        note: a sentence.
        warning: whether it is bad news.
        round: the number of the round that it declares, None if it declares none.
        workers: in that round, or in the group that trains again.
        cause: of that round, in words; or the reason that it recovers from.
        seconds: what the interruption took.
        steps_lost: what it cost.
    """

    at: datetime
    reason: str
    note: str
    warning: bool = False
    round: int | None = None
    workers: int | None = None
    cause: str = ""
    seconds: float | None = None
    steps_lost: int = 0


def read_events(manifests: Iterable[Mapping[str, Any]], uid: str = "") -> list[JobEvent]:
    """Returns the events of a job, oldest first.

    Args:
        manifests: events about it, as the API's v1 has them.
        uid: of the job: events of an earlier job of the same name are left out. Empty: any.
    """
    events = []
    for manifest in manifests:
        about = (manifest.get("involvedObject") or manifest.get("regarding") or {}).get("uid")
        times = (manifest.get(name) for name in ("eventTime", "lastTimestamp", "firstTimestamp", "deprecatedLastTimestamp"))
        at = next((time for text in times if (time := parse_time(text))), None)
        if at is None or (uid and about and about != uid):
            continue
        note = str(manifest.get("message") or manifest.get("note") or "")
        events.append(_read_note(JobEvent(at, str(manifest.get("reason", "")), note, manifest.get("type") == "Warning")))
    return sorted(events, key=lambda event: event.at)


def _read_note(event: JobEvent) -> JobEvent:
    """Returns an event with what its note says, as no field of an event has it."""
    if found := _ROUND.match(event.note):
        number, workers, cause = found.groups()
        return replace(event, round=int(number), workers=int(workers), cause=cause or "")
    if event.reason == names.TRAINING_RESUMED and (found := _RECOVERED.match(event.note)):
        workers, seconds, cause, lost = found.groups()
        return replace(event, workers=int(workers), cause=cause, seconds=float(seconds), steps_lost=int(lost or 0))
    return event
