"""A series of numbers in one line of text."""

import itertools
from collections.abc import Iterable, Sequence

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Iterable[float], width: int) -> str:
    """The newest values as bars, from the least to the largest of them; fewer than `width` if there are fewer values.

    Args:
        values: oldest first; more than fit are averaged in groups.
        width: in characters.
    """
    shown = pool(list(values), width)
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    if high == low:
        return BARS[3] * len(shown)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in shown)


def pool(values: Sequence[float], limit: int) -> list[float]:
    """At most `limit` values: the means of groups of neighbours."""
    if len(values) <= limit:
        return list(values)
    bounds = [round(i * len(values) / limit) for i in range(limit + 1)]
    groups = [values[start:end] for start, end in itertools.pairwise(bounds)]
    return [sum(group) / len(group) for group in groups]
