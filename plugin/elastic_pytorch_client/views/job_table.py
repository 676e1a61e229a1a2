"""A table of jobs: on a narrow screen it leaves out whole columns, the least important one first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    importance: int  # 0: always there, and whole; of others, the highest number is left out first
    cells: Sequence[Text]
    enough: int = 0  # the least width that is worth its place; 0: the texts are whole

    @property
    def whole_width(self) -> int:
        """In characters."""
        return max(cell_len(self.title), *(cell.cell_len for cell in self.cells), 0)

    @property
    def least_width(self) -> int:
        """In characters."""
        return min(self.whole_width, max(self.enough, len(self.title))) if self.enough else self.whole_width


def choose_columns(importance: Sequence[int], widths: Sequence[int], *, gap: int, room: int) -> list[int]:
    """Returns the places of the columns that a screen has room for, by their importance and least widths in characters."""
    kept = list(range(len(widths)))
    for place in sorted(kept, key=lambda place: -importance[place]):
        if not importance[place] or sum(widths[i] for i in kept) + gap * (len(kept) - 1) <= room:
            break
        kept.remove(place)
    return kept


@dataclass(frozen=True, slots=True)
class JobTable:
    """Draws columns as the width of the screen allows.

    The columns that are always there may need more than the screen has. Then lines are longer than the screen, as kubectl's are.
    """

    columns: Sequence[Column]
    gap: int = 2
    wide: bool = False  # all columns, and whole, whatever the width of the screen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        importance, least = [c.importance for c in self.columns], [c.least_width for c in self.columns]
        room = options.max_width
        if self.wide:
            room = max(room, sum(c.whole_width for c in self.columns) + self.gap * len(self.columns))
        kept = [self.columns[place] for place in choose_columns(importance, least, gap=self.gap, room=room)]
        needed = sum(column.least_width for column in kept) + self.gap * (len(kept) - 1)
        table = Table(box=None, pad_edge=False, padding=(0, self.gap, 0, 0), header_style="bold")
        spare = max(0, room - needed)
        for column in kept:
            width = min(column.whole_width, column.least_width + spare)
            spare -= width - column.least_width
            table.add_column(column.title, width=width, no_wrap=True, overflow="ellipsis")
        table.width = max(room, needed) - spare
        for row in zip(*(column.cells for column in kept), strict=True):
            table.add_row(*row)
        yield table
