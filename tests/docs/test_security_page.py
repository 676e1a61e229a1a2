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
    threats = PAGE.read_text().partition("\n## Threats\n")[2].partition("\n## Permissions\n")[0]
    items = re.findall(r"^- (?:.|\n(?!-|\n))+", threats, re.MULTILINE)
    assert len(items) > 40
    for item in items:
        named = re.findall(r"`(test_\w+)`", item)
        assert named, f"no test for: {item}"
        assert set(named) <= there, item
