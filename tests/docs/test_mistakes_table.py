"""docs/use/troubleshooting.md: each mistake repeats what a bad manifest expects."""

import re
from collections.abc import Iterator

from tests.documentation import name_of
from tests.faults import assert_none
from tests.paths import ROOT

PAGE = ROOT / "docs" / "use" / "troubleshooting.md"
HEADING = "## The API server refuses it\n"
ROW = re.compile(
    r"^\| (?P<wrote>.+) \(\[file\]\((?P<file>\S+)\)\) \| `(?P<words>[^`]+)` \| (?P<instead>.+) \|$"
)
COUNT = 6


def table() -> list[str]:
    section = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


ROWS = [row for row in map(ROW.match, table()) if row]


def test_each_row_is_of_the_form_that_is_checked() -> None:
    assert len(ROWS) == len(table()) == COUNT
    assert len({row["file"] for row in ROWS}) == COUNT


def faults_of(row: re.Match[str]) -> Iterator[str]:
    first, _, fields = (PAGE.parent / row["file"]).read_text().partition("\n")
    if first != f"# expect: {row['words']}":
        yield f"{row['file']} has {first}"
    for written in re.findall(r"`([^`]+)`", row["wrote"]):
        if written not in fields:
            yield f"{row['file']} has no {written}"


def test_rows_say_what_the_manifests_have_and_expect() -> None:
    assert_none(f"{name_of(PAGE)}: {fault}" for row in ROWS for fault in faults_of(row))
