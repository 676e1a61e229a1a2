"""Markdown of programs: tables, the spread of trials as one cell, and a block of a page. Pure."""

import statistics
from collections.abc import Iterable, Sequence

NOTHING = "-"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; nothing in its cells is escaped."""
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rows))


def spread(values: Sequence[float], digits: int | None = None) -> str:
    """The median, with the worst in brackets; a dash without values.

    It has `digits` after the point; None: two, one if the worst is 10 or more, none from 100.
    """
    if not values:
        return NOTHING
    worst = max(values)
    if digits is None:
        digits = 0 if worst >= 100 else 1 if worst >= 10 else 2
    return f"{statistics.median(values):,.{digits}f} ({worst:,.{digits}f})"


def page(text: str, begin: str, end: str, block: str) -> str:
    """A page with a block between its markers; raises ValueError if it lacks them."""
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"the page lacks the lines {begin.strip()} and {end.strip()}")
    return f"{before}{begin}{block}{end}{after}"
