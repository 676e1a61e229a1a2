"""A table of jobs: on a narrow screen it leaves out whole columns, the least important one first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    importance: int  # 0: always there; of others, the highest number is left out first
    cells: Sequence[Text]

    @property
    def width(self) -> int:
        """In characters."""
        return max(cell_len(self.title), *(cell.cell_len for cell in self.cells), 0)


def choose_columns(
    importance: Sequence[int], widths: Sequence[int], *, gap: int, room: int
) -> list[int]:
    """Returns the places of the columns that a screen has room for, by their importance and widths in characters."""
    kept = list(range(len(widths)))
    for place in sorted(kept, key=lambda place: -importance[place]):
        if not importance[place] or sum(widths[i] for i in kept) + gap * (len(kept) - 1) <= room:
            break
        kept.remove(place)
    return kept


@dataclass(frozen=True, slots=True)
class JobTable:
    """Draws columns as the width of the screen allows.

    The columns that are always there may need more than the screen has. Then lines are longer than
    the screen, as kubectl's are.
    """

    columns: Sequence[Column]
    # What is said of each row below the table, unless the screen has room for the last column.
    notes: Sequence[Text] = ()
    gap: int = 2
    wide: bool = False  # all columns, whatever the width of the screen

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        importance, widths = [c.importance for c in self.columns], [c.width for c in self.columns]
        kept = list(range(len(widths)))
        if not self.wide:
            kept = choose_columns(importance, widths, gap=self.gap, room=options.max_width)
        table = Table(box=None, pad_edge=False, padding=(0, self.gap, 0, 0), header_style="bold")
        for place in kept:
            table.add_column(self.columns[place].title, width=widths[place], no_wrap=True)
        table.width = sum(widths[place] for place in kept) + self.gap * (len(kept) - 1)
        for row in zip(*(self.columns[place].cells for place in kept), strict=True):
            table.add_row(*row)
        yield table
        if len(widths) - 1 not in kept:
            yield from self.notes
