"""Messages, sets of indexes, times and numbers of a status, and durations for people."""

import re
from datetime import UTC, datetime

MAX_INDEX = 65_535  # far beyond the workers of a job
LARGEST = 1e300  # of which a sum is finite
_TRACEBACK = "Traceback (most recent call last):"
_COMMAND = re.compile(  # the first group has those that color
    r"(\x1b\[[\d;:]*m)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_SCHEDULER = re.compile(r"[.,] (?:no new claims to deallocate|preemption: ).*$", re.DOTALL)


def first_line(message: str) -> str:
    """A message's first line, the exception of a traceback, or the scheduler's words once."""
    head, found, trace = message.partition(_TRACEBACK)
    if found:
        last = [line.strip() for line in trace.splitlines() if line.strip()][-1:]
        return f"{head.strip()} {last[0] if last else 'an exception'}".strip()
    return _SCHEDULER.sub("", message.strip().split("\n")[0]).rstrip()


def parse_ranges(text: str) -> tuple[int, ...]:
    """The indexes of `0-3,5,7-9`, as in Kubernetes' Indexed Jobs; none for another text."""
    indexes: list[int] = []
    for part in text.split(",") if text else ():
        first, dash, end = part.partition("-")
        last = end if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) <= MAX_INDEX):
            return ()
        indexes += range(int(first), int(last) + 1)
    return tuple(indexes)


def parse_whole(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) else None


def parse_time(text: object) -> datetime | None:
    """An RFC 3339 time, with up to nine digits of a second; None for another value."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def parse_number(text: object) -> float | None:
    """A decimal number in a string; None for another value."""
    try:
        return float(str(text))
    except ValueError:
        return None


def spell(seconds: float) -> str:
    """A duration in its two largest units, such as `3 min 12 s`."""
    whole = max(0, int(seconds))
    units = (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))
    for unit, size, smaller, small in units:
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def short(seconds: float) -> str:
    """A duration in one word, such as `3m`, as in kubectl's AGE column."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def seconds_since(time: datetime | None, now: datetime) -> float:
    """The seconds from a time until now, at least 0; 0 for an unknown time."""
    return max(0.0, (now - time).total_seconds()) if time else 0.0


def finite(value: float | None) -> float | None:
    """A number that can be added to and drawn with others; None for any other."""
    return value if value is not None and abs(value) < LARGEST else None


def without_commands(text: str, *, colors: bool = False) -> str:
    """A text without commands for a terminal, or only with those that color it."""
    return _COMMAND.sub(lambda found: (found[1] or "") if colors else "", text)
