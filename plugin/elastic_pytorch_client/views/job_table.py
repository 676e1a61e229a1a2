"""A table of jobs, which omits the least important columns on a narrow screen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    importance: int  # 0: always there; the highest number is left out first
    cells: Sequence[Text]

    @property
    def width(self) -> int:  # characters
        return max(cell_len(self.title), *(cell.cell_len for cell in self.cells), 0)


def choose_columns(
    importance: Sequence[int], widths: Sequence[int], *, gap: int, room: int
) -> list[int]:
    """The indexes of the columns that fit, by importance, with widths in characters."""
    kept = list(range(len(widths)))
    for place in sorted(kept, key=lambda place: -importance[place]):
        if not importance[place] or sum(widths[i] for i in kept) + gap * (len(kept) - 1) <= room:
            break
        kept.remove(place)
    return kept


@dataclass(frozen=True, slots=True)
class JobTable:
    """Draws the columns that the screen has room for.

    If those that are always there need more, lines are longer than the screen, as kubectl's are.
    """

    columns: Sequence[Column]
    notes: Sequence[Text] = ()  # of rows, below the table, if the last column is left out
    gap: int = 2
    wide: bool = False  # all columns on any screen

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
