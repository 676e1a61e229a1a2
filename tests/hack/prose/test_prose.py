"""The check of the prose: which words and sentences it objects to, what it reads of each kind of file, and what it prints."""

import subprocess
import sys
from pathlib import Path

import pytest
from passages import Passage, comments, markdown, plain, python, schema, unreleased
from words import objections

from tests.paths import ROOT

MAX_WORDS = 30


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Nobody does anything about it.", ["Nobody"]),
        ("It is started anew, and somebody looks after it.", ["anew", "somebody", "looks after"]),
        ("The workers are started again.", []),
        ("The renewal takes a second.", []),  # `anew` stands in no other word
        ("It holds so\nmany files for ever.", ["so\nmany", "for ever"]),
    ],
)
def test_words_that_are_not_used(text: str, words: list[str]) -> None:
    found = {
        text[at : at + len(word)]
        for word in words
        for at, what in objections(text, MAX_WORDS)
        if f"`{' '.join(word.split())}`" in what
    }
    assert found == set(words)
    assert len(list(objections(text, MAX_WORDS))) == len(words)


def test_an_objection_says_what_to_write_instead() -> None:
    ((at, what),) = objections("It starts anew.", MAX_WORDS)
    assert (at, what) == (10, "`anew`: write again")


@pytest.mark.parametrize(
    ("text", "long"),
    [
        (" ".join(["word"] * MAX_WORDS) + ".", False),
        (" ".join(["word"] * (MAX_WORDS + 1)) + ".", True),
        (" ".join(["word"] * 20) + ": " + " ".join(["item,"] * 20) + ".", False),
        (" · ".join(["word"] * MAX_WORDS), False),
        ("**Bold.** " + " ".join(["word"] * 30) + ".", False),
        ("Two. " + " ".join(["word"] * 20) + "; " + " ".join(["word"] * 20) + ".", True),
    ],
)
def test_long_sentences(text: str, long: bool) -> None:
    assert any("a sentence of" in what for _, what in objections(text, MAX_WORDS)) is long


def test_a_long_sentence_is_found_where_it_begins() -> None:
    text = "A short one.\n" + " ".join(["word"] * 31)
    ((at, what),) = objections(text, MAX_WORDS)
    assert at == 13
    assert "31 words" in what


def test_pages_are_read_without_their_code() -> None:
    page = """# A heading
A paragraph of `nobody()` with [a link](somebody.md) and
a second line.

    kubectl get nobody

| a cell | another |
|---|---|
- an item
- a second

```sh
somebody
```
The end.
"""
    assert list(markdown(page)) == [
        Passage(1, "A heading"),
        Passage(2, "A paragraph of CODE with a link and\na second line."),
        Passage(7, "a cell"),
        Passage(7, "another"),
        Passage(9, "an item"),
        Passage(10, "a second"),
        Passage(15, "The end."),
    ]


def test_only_the_first_section_of_a_changelog_is_read() -> None:
    assert [p.text for p in unreleased("# Changelog\n\n## Unreleased\n- New.\n\n## 0.1\n- Old.\n")] == [
        "Changelog",
        "Unreleased",
        "New.",
    ]


def test_descriptions_and_messages_of_a_schema_are_read() -> None:
    text = "a:\n  description: |-\n    The first\n    text.\n  pattern: somebody\nrules:\n  - rule: self > 0\n    message: the second\n"
    assert list(schema(text)) == [Passage(3, "The first\ntext."), Passage(8, "the second")]


def test_comments_of_values_are_read() -> None:
    assert list(comments("# About\n# it.\na: 1 # of its own\n\n  # Another.\nb: 2\n")) == [
        Passage(1, "About\nit."),
        Passage(5, "Another."),
    ]


def test_paragraphs_of_a_template_are_read() -> None:
    assert [(p.line, p.text.strip()) for p in plain("{{ .Values.x }} runs.\n\nSee\nit:\n- one\n- two\n")] == [
        (1, "CODE runs."),
        (3, "See\nit:"),
        (5, "- one"),
        (6, "- two"),
    ]


def test_strings_and_docstrings_of_a_module_are_read() -> None:
    module = '''"""About the module.

    In two paragraphs.
    """
NAME = "nobody"
def f(x):
    raise ValueError(f"{x!r} is not"
                     " a number")
'''
    assert list(python(module)) == [
        Passage(1, "About the module."),
        Passage(3, "    In two paragraphs.\n    "),
        Passage(7, "CODE is not a number"),
    ]


def test_the_program_names_the_line_and_fails(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Title\n\nIt is\nmade anew.\n")
    command = [sys.executable, str(ROOT / "hack" / "prose")]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "README.md:4: `anew`: write again\n")
    (tmp_path / "README.md").write_text("# Title\n\nIt is made again.\n")
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
