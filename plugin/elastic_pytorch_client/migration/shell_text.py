"""Shell command strings: which are one plain command, and where others call torchrun."""

import re
import shlex
from dataclasses import dataclass, field

from elastic_pytorch_client.migration.torchrun_options import TorchrunLine, UnknownOption, split_line

SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh"}
# Flags with which `-c` runs one command as it would run without a shell: no login files, no prompt.
PLAIN_FLAGS = re.compile(r"-[euxo]*c[eux]*\Z")
EXPANDED = re.compile(r"[$`*?~{}#!\[\]]")
CONTINUED = re.compile(r"\\\n\s*")
TORCHRUN = re.compile(
    r"(?<![\w./-])(?:[\w./-]*/)?(?:torchrun|python[\d.]*(?:\s+-u)?\s+-m\s+torch\.distributed\.(?:run|launch))(?![\w./-])"
)
PYTHON = re.compile(r"(?<![\w./-])(?:[\w./-]*/)?python[\d.]*(?=\s)")
WORD = re.compile(r"""(?:[^\s'"\\|&;<>()$`]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|\$\([^()]*\)|\$\{[^}]*\}|\$|`[^`]*`)+""", re.DOTALL)
GAP = re.compile(r"(?:[ \t]|\\\n)*")


def plain_words(text: str) -> list[str] | None:
    """The words of a string that is one plain command; None if only a shell can say what it does."""
    text = CONTINUED.sub(" ", text.strip())
    if EXPANDED.search(text) or "\n" in text:
        return None
    splitter = shlex.shlex(text, posix=True, punctuation_chars=True)
    splitter.whitespace_split = True
    splitter.commenters = ""
    try:
        words = list(splitter)
    except ValueError:
        return None
    if any(word and not word.strip("();<>|&") for word in words):
        return None
    if words[:1] == ["exec"]:
        words = words[1:]
    return words if words and "=" not in words[0] else None


@dataclass(frozen=True, slots=True)
class ShellText:
    """A string for a shell that calls torchrun somewhere.

    Attributes:
        text: without the options that the operator decides, or that move into the job's spec.
        options: those options.
    """

    text: str
    options: dict[str, str] = field(default_factory=dict)


def take_options(text: str) -> ShellText | None:
    """Takes torchrun's options out of a shell's string; None if it calls no torchrun, or with options that are not known."""
    calls = list(TORCHRUN.finditer(text))
    if not calls:
        return None
    options: dict[str, str] = {}
    for call in reversed(calls):
        spans = _words_after(text, call.end())
        try:
            line: TorchrunLine = split_line([text[start:end] for start, end in spans])
        except UnknownOption:
            return None
        # A number of processes that the shell works out stays where it is.
        values = {name: _unquoted(value) for name, value in line.options.items()}
        worked_out = {name for name, value in values.items() if name == "nproc-per-node" and EXPANDED.search(value)}
        options.update({name: value for name, value in values.items() if name not in worked_out})
        for place in reversed(line.removed):
            start, end = spans[place]
            if _belongs_to(worked_out, text, spans, place):
                continue
            start -= len(text[:start]) - len(text[:start].rstrip(" \t"))
            text = text[:start] + text[end:]
    return ShellText(_without_empty_lines(text), options)


def calls_python(text: str) -> bool:
    """Whether a shell's string starts a Python."""
    return bool(PYTHON.search(text))


def _words_after(text: str, place: int) -> list[tuple[int, int]]:
    """Where the words of the command stand that goes on at a place."""
    spans: list[tuple[int, int]] = []
    while True:
        gap = GAP.match(text, place)
        start = gap.end() if gap else place
        word = WORD.match(text, start)
        if word is None:
            return spans
        spans.append(word.span())
        place = word.end()


def _belongs_to(names: set[str], text: str, spans: list[tuple[int, int]], place: int) -> bool:
    words = [text[start:end] for start, end in spans[max(0, place - 1) : place + 1]]
    return any(word.lstrip("-").partition("=")[0].replace("_", "-") in names for word in words if word.startswith("-"))


def _unquoted(value: str) -> str:
    return value.strip("'\"")


def _without_empty_lines(text: str) -> str:
    """Without the continued lines that held nothing but what was taken out."""
    return re.sub(r"(\\\n[ \t]*)+(?=\\\n)", "", text)
