"""The page of conditions and reasons: each that the operator can set is in it, and nothing else."""

import ast
import re
from functools import cache

import pytest
from elastic_pytorch_operator.api import names

from tests.paths import ROOT

SOURCES = sorted((ROOT / "operator" / "elastic_pytorch_operator").rglob("*.py"))
CONSTANTS = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
WORDS = {
    name: value for name, value in CONSTANTS.items() if re.fullmatch(r"([A-Z][a-z]+)+", value) and not name.endswith("KIND")
}


def table_under(heading: str) -> dict[str, list[str]]:
    """The cells of a table of the page, row by row, by the name in the first one."""
    section = (
        (ROOT / "docs" / "reference" / "conditions.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) == len({row[0] for row in rows})
    return {row[0].strip("`"): row[1:] for row in rows}


TYPES, REASONS, EVENTS = map(table_under, ("Conditions", "Reasons of conditions", "Reasons of events"))


def test_every_name_of_a_condition_a_reason_or_an_event_is_explained() -> None:
    assert set(WORDS.values()) == {*TYPES, *REASONS, *EVENTS}


@cache
def calls() -> dict[str, list[ast.Call]]:
    """All calls in the operator's modules, by the name of what is called."""
    found: dict[str, list[ast.Call]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.setdefault(node.func.id, []).append(node)
    return found


def constants_in(called: str, place: int) -> set[str]:
    """The names' values that stand in a place of the calls of something, in all of the operator's modules."""
    found = set()
    for call in calls()[called]:
        if len(call.args) > place:
            said = call.args[place]
            assert not isinstance(said, ast.Constant), f"{ast.unparse(call)} says a word that names.py does not"
            attributes = [part for part in ast.walk(said) if isinstance(part, ast.Attribute)]
            found |= {CONSTANTS[part.attr] for part in attributes if part.attr in CONSTANTS}
    return found


@pytest.mark.parametrize(
    ("called", "place", "table"),
    [
        ("Condition", 0, TYPES),
        ("Condition", 2, REASONS),
        ("Ending", 1, REASONS),
        ("RecordEvent", 0, EVENTS),
        ("_with_status", 0, EVENTS),
        ("declare", 0, EVENTS),
    ],
)
def test_what_the_operator_says_in_a_place_is_in_the_table_of_that_place(
    called: str, place: int, table: dict[str, list[str]]
) -> None:
    said = constants_in(called, place)
    assert said
    assert said <= set(table)


@pytest.mark.parametrize(("table", "columns"), [(TYPES, 2), (REASONS, 3), (EVENTS, 2)])
def test_each_row_says_what_the_name_means_and_what_to_do(table: dict[str, list[str]], columns: int) -> None:
    assert table
    for name, cells in table.items():
        assert len(cells) == columns, name
        assert all(cell.endswith(".") for cell in cells[-2:]), name


def test_reasons_name_conditions() -> None:
    for name, (conditions, *_) in REASONS.items():
        assert set(conditions.split(", ")) <= {*TYPES, "all", "at the end"} or conditions == "Degraded, or all, at the end", (
            name
        )
