"""A run's table: a row for each figure, or for each measurement that failed. Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

MAX_ERROR_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Row:
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
    """The rows among the whole lines of an output; other lines are left out."""
    found = []
    for line in text.splitlines():
        try:
            found.append(Row(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def failed(what: str, parameters: str, how: str, why: str) -> Row:
    words = " ".join(why.split())
    return Row(what, parameters, how, remark=f"FAILED: {words[-MAX_ERROR_CHARACTERS:]}")


def lay_out(rows: Sequence[Row]) -> str:
    cells = [[str(getattr(row, f.name)).replace("|", "/") for f in fields(Row)] for row in rows]
    return align(HEADINGS, cells)


def align(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [headings, *rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    lines = []
    for line in cells:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        lines.append(f"| {' | '.join(padded)} |")
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
