"""The page of conditions and reasons: each that the operator can set is in it, and nothing else."""

import ast
import re

from elastic_pytorch_operator.api import names

from tests.paths import ROOT

PAGE = (ROOT / "docs" / "reference" / "conditions.md").read_text()
CONSTANTS = {
    name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)
}


ITEM = re.compile(r"^- (?P<names>`\w+`(?:, `\w+`)*)(?: \((?P<of>[\w, ]+)\))?: (?P<meaning>.+\.)$")


def list_under(heading: str) -> dict[str, str]:
    """The conditions of each name in a list of the page; empty if the item has none."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("-")]
    items = [item for item in map(ITEM.match, lines) if item]
    assert len(items) == len(lines), "an item has no name, or no sentence"
    named = [
        (name.strip("`"), item["of"] or "") for item in items for name in item["names"].split(", ")
    ]
    assert len(named) == len(dict(named))
    return dict(named)


TYPES, REASONS, EVENTS = map(
    list_under, ("Conditions", "Reasons of conditions", "Reasons of events")
)


def test_every_name_of_a_condition_a_reason_or_an_event_is_explained() -> None:
    words = {
        value
        for name, value in CONSTANTS.items()
        if re.fullmatch(r"([A-Z][a-z]+)+", value) and not name.endswith("KIND")
    }
    assert words == {*TYPES, *REASONS, *EVENTS}
    unknown = [name for name, of in REASONS.items() if not {*of.split(", ")} <= {*TYPES, "all"}]
    assert not unknown, "their conditions"
    assert not any([*TYPES.values(), *EVENTS.values()])


def test_what_the_operator_says_in_a_place_is_in_the_list_of_that_place() -> None:
    tables = {
        ("Condition", 0): TYPES,
        ("Condition", 2): REASONS,
        ("Ending", 1): REASONS,
        ("RecordEvent", 0): EVENTS,
        ("_with_status", 0): EVENTS,
        ("declare", 0): EVENTS,
    }
    found: dict[tuple[str, int], set[str]] = {place: set() for place in tables}
    trees = [
        ast.parse(path.read_text())
        for path in (ROOT / "operator" / "elastic_pytorch_operator").rglob("*.py")
    ]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        for called, place in tables:
            if (
                isinstance(call.func, ast.Name)
                and call.func.id == called
                and len(call.args) > place
            ):
                said = call.args[place]
                assert not isinstance(said, ast.Constant), (
                    f"{ast.unparse(call)} says a word that names.py does not"
                )
                attributes = {
                    part.attr for part in ast.walk(said) if isinstance(part, ast.Attribute)
                }
                found[called, place] |= {CONSTANTS[name] for name in attributes & CONSTANTS.keys()}
    assert all(found.values())
    assert {place: said - tables[place].keys() for place, said in found.items()} == {
        place: set() for place in tables
    }
