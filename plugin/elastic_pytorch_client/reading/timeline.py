"""A job's events, oldest first, with their annotations of rounds and interruptions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.text import parse_number, parse_time

MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of a job, with what its annotations say.

    `cause` is a round's cause in words, or the reason of the interruption that is over.
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
    """Events of the API's v1, oldest first, without those of an earlier job of the same name."""
    events = []
    for manifest in manifests:
        about = (manifest.get("involvedObject") or manifest.get("regarding") or {}).get("uid")
        kinds = ("eventTime", "lastTimestamp", "firstTimestamp", "deprecatedLastTimestamp")
        at = next(filter(None, (parse_time(manifest.get(kind)) for kind in kinds)), None)
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
                seconds=parse_number(annotations.get(names.ANNOTATION_SECONDS)),
                steps_lost=_count(annotations.get(names.ANNOTATION_STEPS_LOST)) or 0,
            )
        )
    return sorted(events, key=lambda event: event.at)


def _count(value: object) -> int | None:
    if not isinstance(value, str) or len(value) > MAX_DIGITS:
        return None
    return int(value) if value.isascii() and value.isdigit() else None
