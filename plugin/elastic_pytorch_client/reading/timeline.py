"""A job's events, oldest first, with what their annotations say of rounds and interruptions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.text import parse_time

MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job.

    Attributes:
        round: the round that it declares; None: it declares none.
        workers: the number of workers in that round, or in the group that trains again.
        cause: the cause of that round, in words; or the reason of the interruption that is over.
        seconds: how long the interruption took.
        steps_lost: how many steps it cost.
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
    """Returns events as the API's v1 has them, oldest first, without those of an earlier job of the same name."""
    events = []
    for manifest in manifests:
        about = (manifest.get("involvedObject") or manifest.get("regarding") or {}).get("uid")
        times = (
            manifest.get(name)
            for name in ("eventTime", "lastTimestamp", "firstTimestamp", "deprecatedLastTimestamp")
        )
        at = next((time for text in times if (time := parse_time(text))), None)
        if at is None or (uid and about and about != uid):
            continue
        note = str(manifest.get("message") or manifest.get("note") or "")
        annotations = (manifest.get("metadata") or {}).get("annotations") or {}
        events.append(
            JobEvent(
                at,
                str(manifest.get("reason", "")),
                note,
                warning=manifest.get("type") == "Warning",
                round=_count(annotations.get(names.ANNOTATION_ROUND)),
                workers=_count(annotations.get(names.ANNOTATION_WORKERS)),
                cause=str(annotations.get(names.ANNOTATION_CAUSE, "")),
                seconds=_seconds(annotations.get(names.ANNOTATION_SECONDS)),
                steps_lost=_count(annotations.get(names.ANNOTATION_STEPS_LOST)) or 0,
            )
        )
    return sorted(events, key=lambda event: event.at)


def _count(value: object) -> int | None:
    return (
        int(value)
        if isinstance(value, str)
        and value.isascii()
        and value.isdigit()
        and len(value) <= MAX_DIGITS
        else None
    )


def _seconds(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None
