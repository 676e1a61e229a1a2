"""Shell command strings: plain commands, and calls of torchrun in others."""

import re
import shlex
from dataclasses import dataclass, field

from elastic_pytorch_client.migration.shell_words import ENDS_OF_WORDS, pieces, words_from
from elastic_pytorch_client.migration.torchrun_options import (
    DECIDED,
    DECIDED_FLAGS,
    VARIABLE,
    TorchrunLine,
    UnknownOption,
    split_line,
    variable_of,
)

SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh"}
# Flags with which `-c` runs a command as without a shell: no login files, no prompt.
PLAIN_FLAGS = re.compile(r"-[euxo]*c[eux]*\Z")
EXPANDED = re.compile(r"[$`*?~{}#!\[\]]")
CONTINUED = re.compile(r"\\\n\s*")
INTERPRETER = r"(?:[\w./-]*/)?python[\d.]*(?:\s+-(?!m)\S+(?:\s+[\w=.]+(?=\s+-))?)*\s+"
TORCHRUN = re.compile(
    rf"(?<![\w./-])(?:{INTERPRETER}-m\s*torch\.distributed\.(?:run|launch)"
    rf"|{INTERPRETER}\S*torch/distributed/(?:run|launch)\.py"
    r"|\$\((?:which|command -v)\s+torchrun\s*\)|`(?:which|command -v)\s+torchrun\s*`"
    r"|(?:[\w./-]*/)?torchrun)(?![\w./-])"
)
PYTHON = re.compile(r"(?<![\w./-])(?:[\w./-]*/)?python[\d.]*(?=\s)")
DECIDED_VARIABLES = "|".join(map(variable_of, sorted(DECIDED | DECIDED_FLAGS)))
# The beginning of a value of options, perhaps in an array, unlike that of a script's path.
MAY_BE_OPTIONS = r"""[('"\s\\]*(?:[-#`]|\$(?![\w{}]*/))"""
SET_FOR_TORCHRUN = re.compile(rf"\b({DECIDED_VARIABLES})=")


def plain_words(text: str) -> list[str] | None:
    """The words of a string that is one plain command; None if only a shell can interpret it."""
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


@dataclass(slots=True)
class ShellText:
    text: str  # without options that the operator decides, or that move into the spec
    options: dict[str, str] = field(default_factory=dict)
    counted: bool = False  # the shell computes the number of processes, so the option stays
    variables: list[str] = field(default_factory=list)  # unknown ones in places of options


def take_options(text: str) -> ShellText | None:
    """Takes torchrun's options out of a shell's string; None without a call of torchrun.

    Raises:
        UnknownOption: which words torchrun gets is not known.
    """
    taken = ShellText(text)
    unneeded: set[tuple[int, int]] = set()
    calls = list(TORCHRUN.finditer(text))
    for call in calls:
        unneeded |= _unneeded(text, _words_after(text, call), taken)
    for start, end in sorted(unneeded, reverse=True):
        around = unneeded - {(start, end)}
        if any(low <= start and end <= high for low, high in around):
            continue  # a part of another one
        text = text[:start].rstrip(" \t") + text[end:]
    # without continued lines that have become empty
    taken.text = re.sub(r"(\\\n[ \t]*)+(?=\\\n)", "", text)
    return taken if calls else None


def _unneeded(text: str, spans: list[tuple[int, int]], taken: ShellText) -> set[tuple[int, int]]:
    """The words after a torchrun that go; adds their options to `taken`."""
    words, line = _split(text, spans)
    removed = line.removed - set(line.places.get("use-env", ()))
    for name, value in line.options.items():
        # A number that the shell computes stays.
        if name == "nproc-per-node" and EXPANDED.search(value):
            taken.counted = True
            removed -= set(line.places[name])
        elif name != "use-env":
            taken.options[name] = value
    for word in (words[place] for place in line.variables):
        name = (VARIABLE.match(word) or [""])[1]
        assigned = rf"(?:^|[\s;&|('\"]){name}\+?="
        is_argument = not name or name.isdecimal()
        if is_argument or re.search(assigned + MAY_BE_OPTIONS, text):
            raise UnknownOption(word)
        if not re.search(assigned, text) and word not in taken.variables:
            taken.variables.append(word)
    return {spans[place] for place in removed}


def _words_after(text: str, call: re.Match[str]) -> list[tuple[int, int]]:
    """The places of the words that follow a call, up to the end of the quotes around it.

    Raises:
        UnknownOption: the call is a variable's value, or in quotes whose end is not that of a word.
    """
    place = call.start()
    if found := re.search(r"""\w+\+?=['"(]*\Z""", text[:place]):
        raise UnknownOption(found[0] + call[0])
    low, limit = 0, len(text)
    while around := next(
        ((start, end) for start, end in pieces(text, low, limit) if start < place < end - 1), None
    ):
        start, end = around
        quoted = text[start] in "'\""
        escaped = "\\" in text[start:end].replace("\\\n", "")
        if quoted and (escaped or (end < limit and text[end] not in ENDS_OF_WORDS)):
            raise UnknownOption(text[start:end])
        low, limit = start + (1 if quoted or text[start] == "`" else 2), end - 1
    return words_from(text, call.end(), limit)


def words_of_torchrun(text: str) -> list[str]:
    """The words of a shell's string that may be torchrun's script, or else its options."""
    found: list[str] = []
    for call in TORCHRUN.finditer(text):
        try:
            words, line = _split(text, _words_after(text, call))
        except UnknownOption:
            continue
        places = dict.fromkeys((*line.variables, line.program))
        found += [words[place] for place in places if place < len(words)]
    return found


def _split(text: str, spans: list[tuple[int, int]]) -> tuple[list[str], TorchrunLine]:
    words = [text[start:end].replace("'", "").replace('"', "") for start, end in spans]
    return words, split_line(words)
