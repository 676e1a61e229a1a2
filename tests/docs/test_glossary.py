"""The glossary has each word once, and the programs print none of the words that it has replaced.

Vale finds these in the pages, by the same list.
"""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import yaml

from tests.documentation import name_of
from tests.faults import assert_none
from tests.paths import ROOT

PAGE = ROOT / "docs" / "use" / "concepts.md"
RETIRED = ROOT / ".vale" / "styles" / "Retired" / "Words.yml"
PROGRAMS = [ROOT / name for name in ("operator", "worker_image", "plugin", "local")]
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def tables() -> list[list[str]]:
    """The words of each table of the glossary, in their order."""
    glossary = PAGE.read_text().partition("\n## Glossary\n")[2].partition("\n## ")[0]
    rows = [ROW.findall(table) for table in glossary.split("\n\n") if table.startswith("|")]
    return [[word for word, meaning in each if meaning != "meaning"] for each in rows]


def retired() -> re.Pattern[str]:
    words = yaml.safe_load(RETIRED.read_text())["swap"]
    return re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)


def messages(module: ast.Module) -> Iterator[ast.Constant]:
    """The strings of a module that consist of several words, its docstrings left out."""
    statements = {
        id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)
    }  # a docstring is the value of a statement
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in statements
        ):
            yield node


def retired_words(path: Path) -> Iterator[str]:
    for message in messages(ast.parse(path.read_text())):
        for found in retired().findall(str(message.value)):
            yield f"{name_of(path)}:{message.lineno}: {found}"


def test_glossary_has_each_word_once_and_in_the_order_of_the_alphabet() -> None:
    words = tables()
    assert sum(map(len, words)) >= 40
    assert_none(
        f"{after} stands behind {before}"
        for table in words
        for before, after in pairwise(table)
        if before >= after
    )
    every = [word for table in words for word in table]
    assert len(every) == len(set(every))


def test_no_word_of_the_glossary_is_retired() -> None:
    assert_none(word for table in tables() for word in table if retired().search(word))


def test_messages_have_no_retired_word() -> None:
    modules = [path for folder in PROGRAMS for path in sorted(folder.rglob("*.py"))]
    assert len(modules) > 300
    assert_none(fault for path in modules for fault in retired_words(path))


def test_retired_words_are_found_in_messages_and_not_in_docstrings() -> None:
    module = ast.parse(
        '"""A bell rings."""\nkey = "lane"\nraise ValueError(f"{key}: a Stranger")\n'
    )
    assert [retired().findall(str(each.value)) for each in messages(module)] == [["Stranger"]]
