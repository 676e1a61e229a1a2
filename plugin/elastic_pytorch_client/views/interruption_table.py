"""What each change of a group has cost, as a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.table import Table


@dataclass(frozen=True, slots=True)
class InterruptionRow:
    """A change of the group that is over.

    Attributes:
        event: what happened.
        before: the number of workers before.
        workers: and after.
        again_seconds: from the event to the new group's first step; None: not known.
        pause_seconds: for which nothing was learned; None: not known.
        steps_lost: steps done again; None: not known.
        slowest: the slowest phase, and its time; empty: not known.
    """

    event: str
    before: int
    workers: int
    again_seconds: float | None
    pause_seconds: float | None
    steps_lost: int | None
    slowest: str = ""


def interruption_table(rows: Sequence[InterruptionRow]) -> Table:
    """Returns a line for each change of the group; without the column of phases if none is known."""
    table = Table("event", "workers", box=SIMPLE, title="What happened", title_justify="left", title_style="bold")
    for column in ("new group's first step", "pause of training", "steps lost"):
        table.add_column(column, justify="right")
    phases = any(row.slowest for row in rows)
    if phases:
        table.add_column("slowest phase")
    for row in rows:
        again = "-" if row.again_seconds is None else f"{row.again_seconds:.1f} s after"
        pause = "-" if row.pause_seconds is None else f"{row.pause_seconds:.1f} s"
        lost = "-" if row.steps_lost is None else str(row.steps_lost)
        cells = [row.event, f"{row.before} -> {row.workers}", again, pause, lost]
        table.add_row(*cells, *([row.slowest or "-"] if phases else []))
    return table
