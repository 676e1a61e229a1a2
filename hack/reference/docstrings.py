"""Docstrings as Markdown, in parts. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import cleandoc
from itertools import groupby
from textwrap import dedent

SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")
ENTRY = re.compile(r"(\w+): (.*)")
INDENT = "    "


@dataclass(frozen=True)
class Docstring:
    """A docstring in parts; empty without a part."""

    text: str
    # Of `Args`, `Attributes` and `Raises`, by name.
    entries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    outcome: str = ""  # of `Returns` or `Yields`


def read(docstring: str) -> Docstring:
    """The parts of a docstring; prose after a section is added to the text."""
    prose: list[str] = []
    sections: dict[str, list[str]] = {}
    section = ""
    for line in cleandoc(docstring).splitlines():
        if line.removesuffix(":") in SECTIONS and line.endswith(":"):
            section = line[:-1]
            sections[section] = []
        elif section and (not line or line.startswith(INDENT)):
            sections[section].append(line.removeprefix(INDENT))
        else:
            section = ""
            prose.append(line)
    outcome = sections.pop("Returns", None) or sections.pop("Yields", None) or []
    entries = {name: _entries(lines) for name, lines in sections.items()}
    return Docstring(_fenced(prose), entries, _joined(outcome))


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _entries(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for line in lines:
        if named := ENTRY.match(line):
            found[named[1]] = [named[2]]
        elif line:
            found[next(reversed(found))].append(line)
    return {name: _joined(text) for name, text in found.items()}


def _joined(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def _fenced(lines: list[str]) -> str:
    parts = []
    blocks = "\n".join(lines).strip().split("\n\n")
    for is_code, block in groupby(blocks, lambda each: each.startswith(INDENT)):
        text = "\n\n".join(block)
        parts.append(f"```python\n{dedent(text)}\n```" if is_code else text)
    return "\n\n".join(parts)
