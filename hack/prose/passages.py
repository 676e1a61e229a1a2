"""The prose of a file: what people read of Markdown, YAML, templates and Python. Pure: text in, passages out.

What is code stays out: blocks, addresses of links. A code span, a tag or a template's expression becomes one word.
"""

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import yaml
from markdown_it import MarkdownIt

CODE = "CODE"
MARKUP = re.compile(r"(`+).+?\1|<[^>\n]*>|\{\{.*?\}\}", re.DOTALL)
MARKDOWN = MarkdownIt("commonmark").enable("table")
# What a schema, a rule, a chart or an alert says to people.
TEXT_KEYS = {"description", "message", "summary", "messageExpression"}


class Passage(NamedTuple):
    """A piece of prose with its line breaks, and the number of its first line in the file."""

    line: int
    text: str


def markdown(text: str) -> Iterator[Passage]:
    """Yields the paragraphs, list items, headings and table cells of a page."""
    shown = {"code_inline": CODE, "html_inline": CODE, "softbreak": "\n", "hardbreak": "\n"}
    line = 1
    for token in MARKDOWN.parse(text):
        line = token.map[0] + 1 if token.map else line
        if token.type == "inline" and token.content:
            yield Passage(line, "".join(shown.get(part.type, part.content) for part in token.children or ()))


def unreleased(text: str) -> Iterator[Passage]:
    """Yields a changelog's first section: what was released stays as it is."""
    head, first, rest = text.partition("\n## ")
    yield from markdown(head + first + rest.partition("\n## ")[0])


def schema(text: str) -> Iterator[Passage]:
    """Yields the descriptions and messages of a YAML file."""
    for key, node in _scalars(yaml.compose(text)):
        if key in TEXT_KEYS:
            # A block's text begins in the line after its indicator.
            yield Passage(node.start_mark.line + (2 if node.style in ("|", ">") else 1), _plain(node.value))


def _scalars(node: yaml.Node | None) -> Iterator[tuple[str, yaml.ScalarNode]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(value, yaml.ScalarNode):
                yield str(key.value), value
            yield from _scalars(value)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            yield from _scalars(child)


def comments(text: str) -> Iterator[Passage]:
    """Yields the comments of a YAML file: lines that follow each other are one passage."""
    lines = enumerate(text.splitlines(), 1)
    for is_comment, found in groupby(lines, lambda line: bool(re.match(r"\s*#+ *\S", line[1]))):
        if is_comment:
            first, *rest = ((number, re.sub(r"^\s*#+ ?", "", line)) for number, line in found)
            yield Passage(first[0], _plain("\n".join([first[1], *(line for _, line in rest)])))


def plain(text: str, first: int = 1) -> Iterator[Passage]:
    """Yields the paragraphs and list items of a text or a template whose first line has this number."""
    for paragraph in re.split(r"(\n\s*\n|\n(?=\s*- ))", text):
        if paragraph.strip():
            yield Passage(first, _plain(paragraph))
        first += paragraph.count("\n")


def python(text: str) -> Iterator[Passage]:
    """Yields the strings of a module that are sentences, docstrings among them; an f-string is one passage."""
    nodes = list(ast.walk(ast.parse(text)))
    inside = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node}
    for node in nodes:
        if node in inside:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield from plain(node.value, node.lineno)
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else CODE for part in node.values)
            yield from plain("".join(map(str, parts)), node.lineno)


def _plain(text: str) -> str:
    """The text without markup; as many lines as before."""
    return MARKUP.sub(lambda found: CODE + "\n" * found[0].count("\n"), text)
