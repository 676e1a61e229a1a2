"""The reference of the training library and of the client: every public name, with what its docstring says."""

import ast

import pytest
from docstrings import read, table
from python_api import INTERNAL, SUBJECTS, attributes, definition, exported, members, methods, page

from tests.paths import ROOT

LISTED = [(subject.module, name) for subject in SUBJECTS for name in subject.names]

DOCSTRING = """Adds numbers.

It is slow.

    add(1, 2)

Args:
    first: a number, or
        two of them.
    second: None: there is none.

Returns:
    The sum.

Raises:
    ValueError: one | both are no numbers.

It has no limit.
"""


@pytest.mark.parametrize("module", sorted({subject.module for subject in SUBJECTS}))
def test_page_lists_every_exported_name(module: str) -> None:
    listed = {name for its, name in LISTED if its == module}
    assert set(exported(module)) <= listed
    for name in exported(module):
        assert f"\n### {name}\n" in page()


@pytest.mark.parametrize(("module", "name"), LISTED)
def test_every_public_name_has_a_docstring(module: str, name: str) -> None:
    _, node = definition(module, name)
    assert ast.get_docstring(node)
    for method in members(name):
        assert ast.get_docstring(method), method.name
    if isinstance(node, ast.ClassDef):
        assert not [attribute for attribute, (_, meaning) in attributes(name).items() if not meaning]


def test_what_is_left_out_exists() -> None:
    for name, left_out in INTERNAL.items():
        assert left_out <= {method.name for method in methods(name)}


def test_links_to_the_page() -> None:
    for guide in ("training-library.md", "plugin.md"):
        assert "](../reference/python-api.md" in (ROOT / "docs" / "use" / guide).read_text()


def test_docstring_is_read_in_parts() -> None:
    about = read(DOCSTRING)
    assert about.text == "Adds numbers.\n\nIt is slow.\n\n```python\nadd(1, 2)\n```\n\nIt has no limit."
    assert about.entries["Args"] == {"first": "a number, or two of them.", "second": "None: there is none."}
    assert about.entries["Raises"] == {"ValueError": "one | both are no numbers."}
    assert about.outcome == "The sum."


def test_bar_in_a_cell_does_not_end_it() -> None:
    assert table(("raises",), [("one | both",)]) == "| raises |\n| --- |\n| one \\| both |\n"


def test_name_that_a_module_does_not_offer_is_refused() -> None:
    with pytest.raises(LookupError, match="elastic_pytorch does not offer nothing"):
        definition("elastic_pytorch", "nothing")
