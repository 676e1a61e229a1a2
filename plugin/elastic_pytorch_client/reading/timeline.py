"""A job's events as its story: one turn each, oldest first."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elastic_pytorch_client.reading.job_view import parse_time

_ROUND = re.compile(r"^Round (\d+), (?:(\d+) -> )?(\d+) workers(?:: (.*))?$", re.DOTALL)
_RECOVERED = re.compile(r"^Trains again with (\d+) workers ([0-9.]+) s after (\w+)(?:, (\d+) steps? )?")


@dataclass(frozen=True, slots=True)
class Turn:
    """One event.

    Attributes:
        at: when it happened.
        reason: one word.
        note: a sentence.
        warning: whether it is bad news.
        round: the number of the round that it declares, None if it declares none.
        workers: in that round, or in the group that trains again.
        cause: of that round, in words; or the reason that it recovers from.
        seconds: what the recovery took.
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


def tell(events: Iterable[Mapping[str, Any]], uid: str = "") -> list[Turn]:
    """The turns of a job's life.

    Args:
        events: about it, as the API's v1 has them.
        uid: of the job: a job of the same name that was before it is another story. Empty: any.
    """
    turns = []
    for event in events:
        about = (event.get("involvedObject") or event.get("regarding") or {}).get("uid")
        times = (event.get(name) for name in ("eventTime", "lastTimestamp", "firstTimestamp", "deprecatedLastTimestamp"))
        at = next((time for text in times if (time := parse_time(text))), None)
        if at is None or (uid and about and about != uid):
            continue
        note = str(event.get("message") or event.get("note") or "")
        turns.append(_turn(at, str(event.get("reason", "")), note, event.get("type") == "Warning"))
    return sorted(turns, key=lambda turn: turn.at)


def _turn(at: datetime, reason: str, note: str, warning: bool) -> Turn:
    if found := _ROUND.match(note):
        number, _, workers, cause = found.groups()
        return Turn(at, reason, note, warning, round=int(number), workers=int(workers), cause=cause or "")
    if found := _RECOVERED.match(note):
        workers, seconds, cause, lost = found.groups()
        return Turn(
            at, reason, note, warning, workers=int(workers), cause=cause, seconds=float(seconds), steps_lost=int(lost or 0)
        )
    return Turn(at, reason, note, warning)
