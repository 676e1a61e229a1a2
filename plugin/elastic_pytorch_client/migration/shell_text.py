"""Shell command strings: plain commands, and calls of torchrun in others."""

import re
import shlex
from dataclasses import dataclass, field, replace

from elastic_pytorch_client.migration.shell_words import ENDS_OF_WORDS, pieces, word_end, words_from
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
EXPANDED_BY_SHELL = re.compile(r"[$`]")
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
    """Takes torchrun's options out of a shell's string; None without a known call."""
    if within := _within_one_word(text):
        start, end = within
        inner = take_options(shlex.split(text[start:end])[0])
        return inner and replace(inner, text=text[:start] + shlex.quote(inner.text) + text[end:])
    taken = ShellText(text)
    unneeded: set[tuple[int, int]] = set()
    calls = _calls(text)
    try:
        for start, end in calls:
            unneeded |= _unneeded(text, words_from(text, end, _limit(text, start)), taken)
    except UnknownOption:
        return None
    for start, end in sorted(unneeded, reverse=True):
        around = unneeded - {(start, end)}
        if any(low <= start and end <= high for low, high in around):
            continue  # a part of another one
        text = text[:start].rstrip(" \t") + text[end:]
    # without continued lines that have become empty
    taken.text = re.sub(r"(\\\n[ \t]*)+(?=\\\n)", "", text)
    return taken if calls else None


def _within_one_word(text: str) -> tuple[int, int] | None:
    """The word of quoted strings or escapes that holds all calls; None: there is none."""
    calls = list(TORCHRUN.finditer(text))
    for start, end in pieces(text, 0, len(text)) if calls else ():
        last = word_end(text, start)
        inside = start < calls[0].start() and calls[-1].end() < last
        if inside and text[start] in "'\"" and (start == 0 or text[start - 1] in ENDS_OF_WORDS):
            is_static = not EXPANDED_BY_SHELL.search(re.sub(r"'[^']*'", "", text[start:last]))
            return (start, last) if is_static and (last > end or "\\" in text[start:last]) else None
    return None


def _calls(text: str) -> list[tuple[int, int]]:
    """The places of torchrun, or of a variable with it as a value."""
    found = []
    for call in TORCHRUN.finditer(text):
        found.append(call.span())
        if name := re.search(r"""(\w+)=['"]?\Z""", text[: call.start()]):
            uses = rf"\$(?:{name[1]}\b|\{{{name[1]}\}})"
            found += [use.span() for use in re.finditer(uses, text)]
    return found


def _unneeded(
    text: str,
    spans: list[tuple[int, int]],
    taken: ShellText,
    followed: frozenset[str] = frozenset(),
) -> set[tuple[int, int]]:
    """The words after a torchrun that go; adds their options to `taken`.

    The words may be in the values of the `followed` variables.
    """
    words, line = _split(text, spans)
    removed = line.removed - set(line.places.get("use-env", ()))
    for name, value in line.options.items():
        # A number that the shell computes stays.
        if name == "nproc-per-node" and EXPANDED.search(value):
            taken.counted = True
            removed -= set(line.places[name])
        elif name != "use-env":
            taken.options[name] = value
    found = {spans[place] for place in removed}
    for place in line.variables:
        name = (VARIABLE.match(words[place]) or [""])[1] or words[place]
        values = [] if name in followed else _values(text, name)
        for places in values:
            found |= _unneeded(text, places, taken, followed | {name})
        if not values and name not in followed and words[place] not in taken.variables:
            taken.variables.append(words[place])
    return found


def _values(text: str, name: str) -> list[list[tuple[int, int]]]:
    """The places of the words of a variable's values: an array, a quoted string, or one word."""
    found = []
    for assignment in re.finditer(rf"(?:^|(?<=[\s;&|('\"])){re.escape(name)}\+?=", text):
        start = assignment.end()
        if text.startswith("(", start):
            found.append(words_from(text, start + 1, len(text), array=True))
        elif text[start : start + 1] in ("'", '"'):
            found.append(words_from(text, start + 1, word_end(text, start) - 1, array=True))
        else:
            found.append([(start, word_end(text, start))])
    return found


def _limit(text: str, place: int) -> int:
    """The end of the quotes or the substitution around a place.

    Raises:
        UnknownOption: the end of its command is not known.
    """
    if text[:place].endswith("=("):
        raise UnknownOption(text[place:])
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
    return limit


def words_of_torchrun(text: str) -> list[str]:
    """The words of a shell's string that may be torchrun's script, or else its options."""
    found: list[str] = []
    for call in TORCHRUN.finditer(text):
        try:
            spans = words_from(text, call.end(), _limit(text, call.start()))
            words, line = _split(text, spans)
        except UnknownOption:
            continue
        places = dict.fromkeys((*line.variables, line.program))
        found += [words[place] for place in places if place < len(words)]
    return found


def _split(text: str, spans: list[tuple[int, int]]) -> tuple[list[str], TorchrunLine]:
    words = [text[start:end].replace("'", "").replace('"', "") for start, end in spans]
    return words, split_line(words)
