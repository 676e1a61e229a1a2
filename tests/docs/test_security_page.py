"""docs/security.md names a test for each threat: they are there."""

import re

from tests.paths import ROOT

PAGE = ROOT / "docs" / "security.md"


def test_each_threat_names_tests_that_are_there() -> None:
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "| attack |" not in line]
    assert len(rows) > 10
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, f"no test for: {row}"
        assert set(named) <= there, row
