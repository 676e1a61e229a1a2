"""The mistakes of docs/use/troubleshooting.md: each row repeats what a bad manifest expects, which tests/e2e/api gives to an API server."""

import re

import pytest

from tests.paths import ROOT

PAGE = ROOT / "docs" / "use" / "troubleshooting.md"
HEADING = "## The API server refuses it\n"
ROW = re.compile(r"^\| (?P<wrote>.+) \(\[file\]\((?P<file>\S+)\)\) \| `(?P<words>[^`]+)` \| (?P<instead>.+) \|$")
COUNT = 9


def table() -> list[str]:
    """The rows below the table's head."""
    section = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


ROWS = [row for row in map(ROW.match, table()) if row]


def test_each_row_is_of_the_form_that_is_checked() -> None:
    assert len(ROWS) == len(table()) == COUNT
    assert len({row["file"] for row in ROWS}) == COUNT


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"].rpartition("/")[2])
def test_row_says_what_the_manifest_has_and_expects(row: re.Match[str]) -> None:
    manifest = (PAGE.parent / row["file"]).read_text()
    first, _, fields = manifest.partition("\n")
    assert first == f"# expect: {row['words']}"
    for written in re.findall(r"`([^`]+)`", row["wrote"]):
        assert written in fields, f"{row['file']} has no {written}"
