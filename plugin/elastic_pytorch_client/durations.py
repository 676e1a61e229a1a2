"""Seconds as people say them."""

from datetime import datetime


def spell(seconds: float) -> str:
    """A duration in its two largest units, such as `3 min 12 s`."""
    whole = max(0, int(seconds))
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def short(seconds: float) -> str:
    """A duration in one word, such as `3m`, as kubectl's AGE column has it."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def seconds_since(time: datetime | None, now: datetime) -> float:
    """From a time until now, at least 0; 0 if it is not known."""
    return max(0.0, (now - time).total_seconds()) if time else 0.0
