"""A run's table: a row for each figure, or for each measurement that failed. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

MAX_ERROR_CHARACTERS = 160


class Row(NamedTuple):
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


def failed(what: str, parameters: str, how: str, why: str) -> Row:
    words = " ".join(why.split())
    return Row(what, parameters, how, remark=f"FAILED: {words[-MAX_ERROR_CHARACTERS:]}")


def lay_out(rows: Sequence[Row]) -> str:
    return align(HEADINGS, [[cell.replace("|", "/") for cell in row] for row in rows])


def align(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [headings, *rows]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headings))]
    lines = []
    for line in cells:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        lines.append(f"| {' | '.join(padded)} |")
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
