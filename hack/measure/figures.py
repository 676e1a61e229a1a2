"""The spread of measured values. Pure."""

from collections.abc import Iterable
from statistics import median


def spread(values: Iterable[float], percent: int) -> tuple[float, float, float] | None:
    """The median, a percentile by the nearest rank, and the worst, to 0.001; None: no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    rank = -(-len(ordered) * percent // 100)
    return round(median(ordered), 3), round(ordered[rank - 1], 3), round(ordered[-1], 3)
