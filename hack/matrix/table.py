"""The tables of the pages: read, counted and written. Pure."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple
from xml.etree import ElementTree

Counts = tuple[int, int, list[str], list[tuple[str, int]]]  # passed of the agent and of the library, failed, skipped

HEAD = ("| torch | Python | agent | library | failed | left out, and why | run |", "|---|---|---|---|---|---|---|")

FRAMEWORKS_HEAD = (
    "| row | framework | torch | Python | passed | failed | left out, and why | run |",
    "|---|---|---|---|---|---|---|---|",
)


class Row(NamedTuple):
    """The outcome of the tests on one torch and one Python."""

    torch: str  # its release, with its kind of build behind a plus
    python: str  # its release
    agent: int  # how many tests of the agent have passed
    library: int  # how many tests of the training library, its storage included, have passed
    failed: Sequence[str]  # the names of those that have not
    skipped: Sequence[tuple[str, int]]  # why tests were left out, and how many
    run: str  # when, and at which commit

    def text(self) -> str:
        cells = (self.torch, self.python, str(self.agent), str(self.library), *_troubles(self.failed, self.skipped), self.run)
        return _line(cells)


class FrameworkOutcome(NamedTuple):
    """The outcome of the tests of an adapter on one release of its framework."""

    name: str  # of the row
    packages: str  # with their releases
    torch: str
    python: str
    passed: int
    failed: Sequence[str]
    skipped: Sequence[tuple[str, int]]
    run: str

    def text(self) -> str:
        cells = (self.name, self.packages, self.torch, self.python, str(self.passed))
        return _line((*cells, *_troubles(self.failed, self.skipped), self.run))


def _troubles(failed: Sequence[str], skipped: Sequence[tuple[str, int]]) -> tuple[str, str]:
    return (
        ", ".join(f"`{name}`" for name in failed) or "none",
        ". ".join(f"{reason} ({number})" for reason, number in skipped) or "none",
    )


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


AGENT = re.compile(r"tests\.worker_image\.(agent|failures|operator_link|processes|running_agent|stopping)\.")


def count(report: str) -> Counts:
    """What a report of pytest's (`--junitxml`) says, in the order of a row: agent, library, failed, skipped."""
    passed: Counter[bool] = Counter()
    skipped: Counter[str] = Counter()
    failed = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        left_out = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(case.get("name", ""))
        elif left_out is not None:
            skipped[_reason(left_out)] += 1
        else:
            passed[AGENT.match(case.get("classname", "")) is not None] += 1
    return passed[True], passed[False], sorted(set(failed)), sorted(skipped.items())


def _reason(left_out: ElementTree.Element) -> str:
    """Why a test was left out. Of a whole module pytest gives it in the text: the representation of a tuple."""
    in_text = re.search(r"Skipped: (.*?)['\"]\)$", left_out.text or "")
    return in_text[1] if in_text else left_out.get("message", "")


def with_rows(page: str, rows: Iterable[Row]) -> str:
    """Returns the page with these rows in its table, each instead of the one of the same releases, in the order of the releases."""
    return _with_lines(page, HEAD, (row.text() for row in rows), _releases)


def with_framework_rows(page: str, rows: Iterable[FrameworkOutcome]) -> str:
    """Returns the page with these rows in its table, each instead of the one of the same name, in the order of the names."""
    return _with_lines(page, FRAMEWORKS_HEAD, (row.text() for row in rows), lambda line: line.strip("| ").split(" | ")[0])


def _with_lines(page: str, table_head: Sequence[str], new: Iterable[str], key_of: Callable[[str], Any]) -> str:
    before, head, rest = page.partition("\n".join(table_head) + "\n")
    if not head:
        raise ValueError("the page has no such table")
    old = list(takewhile(lambda line: line.startswith("|"), rest.splitlines()))
    # Of two lines about the same the later is kept.
    lines = {key_of(line): line for line in (*old, *new)}
    after = rest.splitlines()[len(old) :]
    return before + head + "\n".join([*(lines[key] for key in sorted(lines)), *after]) + "\n"


def _releases(row: str) -> tuple[tuple[int, ...], ...]:
    """The releases of torch and of Python that a row is about, without their patches."""
    return tuple(tuple(map(int, cell.split(".")[:2])) for cell in row.strip("| ").split(" | ")[:2])
