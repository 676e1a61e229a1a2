"""The table of the page: read, counted and written. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple
from xml.etree import ElementTree

HEAD = ("| torch | Python | agent | library | failed | left out, and why | run |", "|---|---|---|---|---|---|---|")


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
        failed = ", ".join(f"`{name}`" for name in self.failed) or "none"
        skipped = ". ".join(f"{reason} ({number})" for reason, number in self.skipped) or "none"
        cells = (self.torch, self.python, str(self.agent), str(self.library), failed, skipped, self.run)
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


AGENT = re.compile(r"tests\.worker_image\.(agent|failures|operator_link|processes|running_agent|stopping)\.")


def count(report: str) -> tuple[int, int, list[str], list[tuple[str, int]]]:
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
    before, head, rest = page.partition("\n".join(HEAD) + "\n")
    if not head:
        raise ValueError("the page has no such table")
    old = list(takewhile(lambda line: line.startswith("|"), rest.splitlines()))
    # Of two rows about the same releases the later is kept.
    lines = {_releases(line): line for line in (*old, *(row.text() for row in rows))}
    after = rest.splitlines()[len(old) :]
    return before + head + "\n".join([*(lines[key] for key in sorted(lines)), *after]) + "\n"


def _releases(row: str) -> tuple[tuple[int, ...], ...]:
    """The releases of torch and of Python that a row is about, without their patches."""
    return tuple(tuple(map(int, cell.split(".")[:2])) for cell in row.strip("| ").split(" | ")[:2])
