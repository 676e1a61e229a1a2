"""The page of conditions and reasons: each that the operator can set is in it, and nothing else."""

import ast
import re

from elastic_pytorch_operator.api import names

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "reference" / "conditions.md").read_text()
CONSTANTS = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}


def table_under(heading: str) -> dict[str, list[str]]:
    """The cells of a table of the page, row by row, by each name in the first one."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")]
    named = [(name.strip("`"), row[1:]) for row in rows for name in row[0].split(", ")]
    assert len(named) == len(dict(named))
    return dict(named)


TYPES, REASONS, EVENTS = map(table_under, ("Conditions", "Reasons of conditions", "Reasons of events"))


def test_every_name_of_a_condition_a_reason_or_an_event_is_explained_in_a_whole_row() -> None:
    words = {value for name, value in CONSTANTS.items() if re.fullmatch(r"([A-Z][a-z]+)+", value) and not name.endswith("KIND")}
    assert words == {*TYPES, *REASONS, *EVENTS}
    for table, columns in ((TYPES, 1), (REASONS, 2), (EVENTS, 1)):
        broken = [name for name, cells in table.items() if len(cells) != columns or not cells[-1].endswith(".")]
        assert table and not broken
    known = {*TYPES, "all", "at the end", "Degraded, or all, at the end"}
    unknown = [name for name, (of, *_) in REASONS.items() if of not in known and not set(of.split(", ")) <= known]
    assert not unknown, "their conditions"


def test_what_the_operator_says_in_a_place_is_in_the_table_of_that_place() -> None:
    tables = {
        ("Condition", 0): TYPES,
        ("Condition", 2): REASONS,
        ("Ending", 1): REASONS,
        ("RecordEvent", 0): EVENTS,
        ("_with_status", 0): EVENTS,
        ("declare", 0): EVENTS,
    }
    found: dict[tuple[str, int], set[str]] = {place: set() for place in tables}
    trees = [ast.parse(path.read_text()) for path in (ROOT / "operator" / "elastic_pytorch_operator").rglob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        for called, place in tables:
            if isinstance(call.func, ast.Name) and call.func.id == called and len(call.args) > place:
                said = call.args[place]
                assert not isinstance(said, ast.Constant), f"{ast.unparse(call)} says a word that names.py does not"
                attributes = {part.attr for part in ast.walk(said) if isinstance(part, ast.Attribute)}
                found[called, place] |= {CONSTANTS[name] for name in attributes & CONSTANTS.keys()}
    assert all(found.values())
    assert {place: said - tables[place].keys() for place, said in found.items()} == {place: set() for place in tables}
