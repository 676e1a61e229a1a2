"""The comparison says where each cell of its tables comes from, and when its sources were read."""

import re
from itertools import pairwise

from tests.faults import assert_none
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "evidence" / "comparison.md").read_text()
LINK = re.compile(r"\]\((https://|\.\./|\w[\w-]*\.md)[^)\s]*\)")
DATED = re.compile(r"sources were read between \d+ and \d+ [A-Z][a-z]+ 20\d\d")


def test_each_cell_links_its_source() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    heads = {above for above, below in pairwise(lines) if re.fullmatch(r"\|( ?-+ ?\|)+", below)}
    rows = [
        [cell.strip() for cell in re.split(r" \| ", line.strip("|"))]
        for line in lines
        if line not in heads and "---" not in line
    ]
    assert len(rows) > 20
    assert_none(f"{row[0]}: {cell}" for row in rows for cell in row[1:] if not LINK.search(cell))


def test_the_page_says_when_its_sources_were_read() -> None:
    assert DATED.search(PAGE)
