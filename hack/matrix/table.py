"""The tables of the pages and their logs: counts, reads and writes them. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

HEAD = "| torch | Python | agent | library | failed | left out |"
FRAMEWORKS_HEAD = "| row | framework | torch | Python | passed | failed | left out |"


class Outcome(NamedTuple):
    """A report of pytest's; the names of tests begin with their module."""

    agent: int  # passed tests of the agent
    library: int  # other passed tests
    failed: Sequence[str]
    left_out: Mapping[str, Sequence[str]]  # by the reason


class Run(NamedTuple):
    date: str
    commit: str

    def text(self) -> str:
        return f"Run on {self.date} at {self.commit}:"


class Row(NamedTuple):
    cells: Sequence[str]  # of the table, without the last two
    outcome: Outcome

    def line(self) -> str:
        left_out = sum(map(len, self.outcome.left_out.values()))
        return f"| {' | '.join((*self.cells, str(len(self.outcome.failed)), str(left_out)))} |"

    def section(self) -> str:
        lines = [self.line(), *(f"failed: {test}" for test in self.outcome.failed)]
        for why, tests in self.outcome.left_out.items():
            lines += [f"left out: {test}: {why}" for test in tests]
        return "\n".join(lines)


AGENT = re.compile(
    r"tests\.worker_image\.(agent|failures|operator_link|processes|running_agent|stopping)\."
)


def count(report: str) -> Outcome:
    passed: Counter[bool] = Counter()
    left_out: dict[str, list[str]] = {}
    failed = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        skipped = case.find("skipped")
        # A module that fails or is left out as a whole has its own name for a test's.
        test = f"{case.get('classname', '')}::{case.get('name', '')}".removeprefix("::")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(test)
        elif skipped is not None:
            left_out.setdefault(_reason(skipped), []).append(test)
        else:
            passed[AGENT.match(test) is not None] += 1
    return Outcome(
        passed[True],
        passed[False],
        sorted(set(failed)),
        {reason: sorted(left_out[reason]) for reason in sorted(left_out)},
    )


def _reason(left_out: ElementTree.Element) -> str:
    """Why a test was left out; a whole module has it in the text, as the repr of a tuple."""
    in_text = re.search(r"Skipped: (.*?)['\"]\)$", left_out.text or "")
    return in_text[1] if in_text else left_out.get("message", "")


def run_of(page: str, head: str) -> Run:
    found = _table(page, head)
    return Run(found["date"], found["commit"])


def with_row(page: str, head: str, run: Run, row: Row) -> str:
    """The page with a row that replaces its namesake and rows of other commits."""
    found = _table(page, head)
    kept = found["rows"].splitlines() if found["commit"] == run.commit else []
    table = [run.text(), "", head, "|---" * (head.count("|") - 1) + "|", *_with(kept, row.line())]
    return page[: found.start()] + "\n".join(table) + "\n" + page[found.end() :]


def log_with_row(log: str, head: str, run: Run, row: Row) -> str:
    written, _, *sections = log.rstrip("\n").split("\n\n") if log else ("", "")
    kept = sections if written.endswith(f" {run.commit}:") else []
    return "\n\n".join([run.text(), head, *_with(kept, row.section())]) + "\n"


def _table(page: str, head: str) -> re.Match[str]:
    run, rows = r"^Run on (?P<date>\S+) at (?P<commit>\S+):", r"(?P<rows>(?:\|.*\n)*)"
    found = re.search(rf"{run}\n\n{re.escape(head)}\n\|[-|]+\n{rows}", page, re.M)
    if found is None:
        raise ValueError("the page has no such table")
    return found


def _with(old: Iterable[str], new: str) -> list[str]:
    """Of texts with the same name, the new one stays; numbers in names sort by value."""

    def name(text: str) -> str:
        return text.split(" ")[1].partition("+")[0]

    def order(name: str) -> tuple[list[int], str]:
        return [int(number) for number in re.findall(r"\d+", name)], name

    texts = {name(text): text for text in (*old, new)}
    return [texts[name] for name in sorted(texts, key=order)]
