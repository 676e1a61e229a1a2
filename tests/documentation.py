"""The documentation, as its tests read it: fenced blocks, and the commands that stand in the text."""

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*) ?(\S*)$")
NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
COMMANDS = ("kubectl ", "helm ", "make ", "python ", "torchrun ", "pip ", "pipx ")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: the word after the fence, as `sh` or `yaml`.
        file: the word after that: the reader is told to put the block into a file of this name.
        text: what stands in it.
        not_run: why it is not run, from a comment in the line above; empty if it is.
    """

    language: str
    file: str
    text: str
    not_run: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    found: list[Block] = []
    opened: re.Match[str] | None = None
    reason, before, lines = "", "", []
    for line in page.read_text().splitlines():
        fence = FENCE.match(line)
        if opened is None and fence:
            comment = NOT_RUN.match(before)
            opened, lines, reason = fence, [], comment[1] if comment else ""
        elif opened is not None and line == "```":
            found.append(Block(opened[1], opened[2], "\n".join(lines) + "\n", reason))
            opened = None
        elif opened is not None:
            lines.append(line)
        before = line
    assert opened is None, f"{page}: a block is not closed"
    return found


def block(page: Path, beginning: str) -> str:
    """The only block of a page that begins with these words."""
    (found,) = (each.text for each in blocks(page) if each.text.startswith(beginning))
    return found


def indented_commands(page: Path) -> list[str]:
    """The commands in a page's indented blocks, which are for reading: what they tell is tested elsewhere."""
    inside, found = False, []
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            inside = not inside
        if not inside and line.startswith("    ") and line.strip().startswith(COMMANDS):
            found.append(line.strip().partition("  #")[0].strip())
    return found
