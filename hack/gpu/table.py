"""The table that a run ends with: one row for each figure, or for each measurement that failed.

Pure.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

MAX_ERROR_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of a measurement."""

    what: str
    parameters: str
    how: str
    seconds: str = ""
    step: str = ""
    again: str = ""
    processes: str = ""
    remark: str = ""


HEADINGS = (
    "what happens",
    "model",
    "how",
    "seconds",
    "a step",
    "steps again",
    "processes",
    "remark",
)


def to_line(row: Row) -> str:
    return json.dumps(asdict(row))


def from_lines(text: str) -> list[Row]:
    """The rows among the whole lines of what a process has written; other lines are left out."""
    found = []
    for line in text.splitlines():
        try:
            found.append(Row(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def failed(what: str, parameters: str, how: str, why: str) -> Row:
    """The row of a measurement without a result, or with a part of it."""
    words = " ".join(why.split())
    return Row(what, parameters, how, remark=f"FAILED: {words[-MAX_ERROR_CHARACTERS:]}")


def lay_out(rows: Sequence[Row]) -> str:
    """The rows as a table of Markdown, with columns that are as wide as their cells."""
    return align(
        HEADINGS,
        [[str(getattr(row, f.name)).replace("|", "/") for f in fields(Row)] for row in rows],
    )


def align(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [headings, *rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    lines = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
