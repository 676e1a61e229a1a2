"""docs/operate/security.md names a test for each threat: they are there."""

import re

from tests.paths import ROOT

PAGE = ROOT / "docs" / "operate" / "security.md"


def test_each_threat_names_tests_that_are_there() -> None:
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    tables = re.findall(r"^\| attack \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 40
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, f"no test for: {row}"
        assert set(named) <= there, row
