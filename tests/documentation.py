"""The documentation as its tests read it: blocks, commands, and where a pattern is found."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

FENCE = re.compile(r"^```(\w*) ?(\S*)$")
NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
COMMANDS = ("kubectl ", "helm ", "make ", "python ", "torchrun ", "pip ", "pipx ")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page.

    Attributes:
        line: the number of the line that opens it.
        language: the word after the fence, as `sh` or `yaml`.
        file: the word after that: the reader is told to put the block into a file of this name.
        text: what stands in it.
        not_run: why it is not run, from a comment in the line above; empty if it is.
    """

    line: int
    language: str
    file: str
    text: str
    not_run: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    found: list[Block] = []
    opened: re.Match[str] | None = None
    reason, before, lines, begun = "", "", [], 0
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        fence = FENCE.match(line)
        if opened is None and fence:
            comment = NOT_RUN.match(before)
            opened, begun, lines, reason = fence, number, [], comment[1] if comment else ""
        elif opened is not None and line == "```":
            found.append(Block(begun, opened[1], opened[2], "\n".join(lines) + "\n", reason))
            opened = None
        elif opened is not None:
            lines.append(line)
        before = line
    assert opened is None, f"{page}: a block is not closed"
    return found


def block(page: Path, beginning: str) -> str:
    (found,) = (each.text for each in blocks(page) if each.text.startswith(beginning))
    return found


def indented_commands(page: Path) -> list[tuple[int, str]]:
    """The commands in a page's indented blocks, which are for reading, and their lines."""
    inside, found = False, []
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.startswith("```"):
            inside = not inside
        if not inside and line.startswith("    ") and line.strip().startswith(COMMANDS):
            found.append((number, line.strip().partition("  #")[0].strip()))
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def found_in(
    pages: Iterable[Path], pattern: re.Pattern[str]
) -> Iterator[tuple[Path, str, re.Match[str]]]:
    """Where a pattern is found: the page, the place as `docs/a.md:12`, and the match."""
    for page in pages:
        text = page.read_text()
        for match in pattern.finditer(text):
            yield page, f"{name_of(page)}:{text.count(chr(10), 0, match.start()) + 1}", match
