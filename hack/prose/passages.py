"""The prose of a file: what people read of Markdown, YAML, templates and Python. Pure: text in, passages out.

What is code stays out: fenced and indented blocks, addresses of links. A code span becomes one word.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

CODE = "CODE"
SPAN = re.compile(r"(`+).+?\1", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
TAG = re.compile(r"<[^>\n]*>|\{\{.*?\}\}", re.DOTALL)
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
# What a schema, a rule, a chart or an alert says to people.
TEXT_KEYS = {"description", "message", "summary", "messageExpression"}


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of prose.

    Attributes:
        line: the number of its first line in the file.
        text: the prose, with its line breaks.
    """

    line: int
    text: str


def markdown(text: str) -> Iterator[Passage]:
    """The paragraphs, list items, headings and table cells of a page."""
    lines: list[str] = []
    first, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence, heading, row = line.startswith("```"), line.startswith("#"), line.startswith("|")
        code = fenced or fence or (line.startswith("    ") and not lines)
        if lines and (code or heading or row or not line.strip() or ITEM.match(line)):
            yield Passage(first, _plain("\n".join(lines)))
            lines = []
        if fence:
            fenced = not fenced
        elif code:
            continue
        elif row:
            yield from (Passage(number, cell) for cell in _plain(line).split("|") if cell.strip(" -:"))
        elif heading:
            yield Passage(number, _plain(line.lstrip("# ")))
        elif line.strip():
            first = first if lines else number
            lines.append(line)


def unreleased(text: str) -> Iterator[Passage]:
    """A changelog's first section: what was released stays as it is."""
    head, first, rest = text.partition("\n## ")
    yield from markdown(head + first + rest.partition("\n## ")[0])


def schema(text: str) -> Iterator[Passage]:
    """The descriptions and messages of a YAML file."""
    for key, node in _scalars(yaml.compose(text)):
        if key in TEXT_KEYS:
            # A block's text begins in the line after its indicator.
            line = node.start_mark.line + (2 if node.style in ("|", ">") else 1)
            yield Passage(line, _plain(node.value))


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
    """The comments of a YAML file: lines that follow each other are one passage."""
    lines: list[str] = []
    first = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        comment = re.match(r"\s*#+ ?(.*)", line)
        if comment and comment[1].strip():
            first = first if lines else number
            lines.append(comment[1])
        elif lines:
            yield Passage(first, _plain("\n".join(lines)))
            lines = []


def plain(text: str, first: int = 1) -> Iterator[Passage]:
    """The paragraphs and list items of a text or a template whose first line has this number."""
    for paragraph in re.split(r"(\n\s*\n|\n(?=\s*- ))", text):
        if paragraph.strip():
            yield Passage(first, _plain(paragraph))
        first += paragraph.count("\n")


def python(text: str) -> Iterator[Passage]:
    """The strings of a module that are sentences, docstrings among them; an f-string is one passage."""
    tree = ast.parse(text)
    inside = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node
    }
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield from plain(node.value, node.lineno)
        elif isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else CODE for part in node.values]
            yield from plain("".join(map(str, parts)), node.lineno)


def _plain(text: str) -> str:
    """The text without markup; as many lines as before."""

    def kept(found: re.Match[str], word: str) -> str:
        return word + "\n" * (found[0].count("\n") - word.count("\n"))

    text = SPAN.sub(lambda found: kept(found, CODE), text)
    text = LINK.sub(lambda found: kept(found, found[1]), text)
    return TAG.sub(lambda found: kept(found, CODE), text)
