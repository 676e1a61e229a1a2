"""The page of conditions and reasons: each that the operator can set is in it, and nothing else."""

import ast
import re

import conditions_page
import pytest
from elastic_pytorch_operator.api import names

from tests.paths import ROOT

SOURCES = sorted((ROOT / "operator" / "elastic_pytorch_operator").rglob("*.py"))
CONSTANTS = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
WORDS = {name: value for name, value in CONSTANTS.items() if re.fullmatch(r"([A-Z][a-z]+)+", value) and name != "KIND"}
KNOWN = {*conditions_page.TYPES, *conditions_page.REASONS, *conditions_page.EVENTS}


def test_every_name_of_a_condition_a_reason_or_an_event_is_explained() -> None:
    assert set(WORDS.values()) == KNOWN


def constants_in(called: str, place: int) -> set[str]:
    """The names' values that stand in a place of the calls of something, in all of the operator's modules."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == called
                and len(node.args) > place
            ):
                said = node.args[place]
                assert not isinstance(said, ast.Constant), (
                    f"{path.name}: {ast.unparse(node)} says a word that names.py does not"
                )
                attributes = [part for part in ast.walk(said) if isinstance(part, ast.Attribute)]
                found |= {CONSTANTS[part.attr] for part in attributes if part.attr in CONSTANTS}
    return found


@pytest.mark.parametrize(
    ("called", "place", "table"),
    [
        ("Condition", 0, conditions_page.TYPES),
        ("Condition", 2, conditions_page.REASONS),
        ("Ending", 1, conditions_page.REASONS),
        ("RecordEvent", 0, conditions_page.EVENTS),
        ("_with_status", 0, conditions_page.EVENTS),
        ("declare", 0, conditions_page.EVENTS),
    ],
)
def test_what_the_operator_says_in_a_place_is_in_the_table_of_that_place(called: str, place: int, table: object) -> None:
    said = constants_in(called, place)
    assert said
    assert isinstance(table, dict)
    assert said <= set(table)


def test_each_explanation_is_a_sentence_and_the_page_has_it() -> None:
    text = conditions_page.page()
    rows = [*conditions_page.TYPES.values(), *conditions_page.REASONS.values(), *conditions_page.EVENTS.values()]
    for row in rows:
        assert row.means.endswith(".")
        assert row.to_do.endswith(".")
        assert f"| {row.means} | {row.to_do} |" in text
