"""The table of the page: read, counted and written. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

HEAD = (
    "| torch | Python | agent | library | failed | left out, and why | run |",
    "|---|---|---|---|---|---|---|",
)
_ROW = re.compile(r"\| (\d+\.\d+)[^|]* \| (\d+\.\d+) \|")


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of the tests on one torch and one Python.

    Attributes:
        torch: its release, with its kind of build behind a plus.
        python: its release.
        agent: how many tests of the agent have passed.
        library: how many tests of the training library, its storage included, have passed.
        failed: the names of those that have not.
        skipped: why tests were left out, and how many.
        run: when, and at which commit.
    """

    torch: str
    python: str
    agent: int
    library: int
    failed: Sequence[str]
    skipped: Sequence[tuple[str, int]]
    run: str

    def text(self) -> str:
        """The line of the table."""
        failed = ", ".join(f"`{name}`" for name in self.failed) or "none"
        skipped = "; ".join(f"{reason} ({number})" for reason, number in self.skipped) or "none"
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
    """The page with these rows in its table, each in place of the one of the same releases, in the order of the releases."""
    before, after = _around_table(page)
    all_lines = [*page.splitlines(), *(row.text() for row in rows)]  # of two about one release the later is kept
    lines = {key: line for line in all_lines if (key := _key(line)) is not None}
    return "\n".join([*before, *HEAD, *(lines[key] for key in sorted(lines)), *after]) + "\n"


def _around_table(page: str) -> tuple[list[str], list[str]]:
    lines = page.splitlines()
    begin = lines.index(HEAD[0])
    end = next((i for i in range(begin, len(lines)) if not lines[i].startswith("|")), len(lines))
    return lines[:begin], lines[end:]


def _key(line: str) -> tuple[tuple[int, ...], ...] | None:
    """The releases that a line of the table is about, in a form to be put in order; None: it is no such line."""
    match = _ROW.match(line)
    return tuple(tuple(int(part) for part in release.split(".")) for release in match.groups()) if match else None
