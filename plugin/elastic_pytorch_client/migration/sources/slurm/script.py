"""The text of a batch script: its `#SBATCH` lines, and its commands."""

import re
import shlex
from dataclasses import dataclass, field

DIRECTIVE = re.compile(r"#SBATCH\s+(.*)\Z")
SHORT = {
    "A": "account",
    "C": "constraint",
    "D": "chdir",
    "G": "gpus",
    "J": "job-name",
    "N": "nodes",
    "a": "array",
    "c": "cpus-per-task",
    "d": "dependency",
    "e": "error",
    "i": "input",
    "n": "ntasks",
    "o": "output",
    "p": "partition",
    "q": "qos",
    "t": "time",
    "w": "nodelist",
    "x": "exclude",
}
FLAGS = {"exclusive", "requeue", "no-requeue", "overcommit", "oversubscribe", "hold", "wait", "verbose", "quiet", "parsable"}
HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
BEGINS = re.compile(r"(?:if|for|while|until|case|select)\b|(?:function\s+\w+|\w+\s*\(\s*\)\s*\{)")
DECLARES = r"(?:(?:export|declare|typeset|local|readonly)(?:\s+-\w+)*\s+)?"
BEGINS_ARRAY = re.compile(rf"{DECLARES}\w+\+?=\(")
UNCOMMENTED = re.compile(r"""(?:[^'"#]|'[^']*'|"[^"]*"|['"]|(?<=\S)#)*""")
# Quoted strings and words, then a quote that nothing closes; a `#` at the start of a word begins a comment.
OPEN_QUOTE = re.compile(r"""(?:\\.|[^'"#\\]|'[^']*'|"(?:[^"\\]|\\.)*"|(?<=\S)#)*(?:'[^']*|"(?:[^"\\]|\\.)*)""", re.DOTALL)
ASSIGNS = re.compile(rf"{DECLARES}\w+\+?=")
BACKSLASH, NEW_LINE = "\\", "\n"
ENDS = re.compile(r"(?:fi|done|esac)\b|\}")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a script, its continued lines joined."""

    line: int  # of its beginning, from 1
    text: str
    nested: bool = False  # in a loop, a condition or a function


@dataclass(frozen=True, slots=True)
class BatchScript:
    # Of sbatch, by their long names; a flag has an empty value.
    options: dict[str, str] = field(default_factory=dict)
    commands: tuple[Command, ...] = ()


def read_script(text: str) -> BatchScript:
    """Reads a batch script; as for sbatch, options after the first command are comments."""
    options: dict[str, str] = {}
    commands: list[Command] = []
    lines = text.splitlines()
    place = depth = 0
    while place < len(lines):
        first, line = place + 1, lines[place].strip()
        place += 1
        if (directive := DIRECTIVE.match(line)) and not commands:
            options |= read_options(directive[1])
        if not line or line.startswith("#"):
            continue
        if is_array := BEGINS_ARRAY.match(line) is not None:
            line = _uncommented(line)
        while _goes_on(line, is_array=is_array) and place < len(lines):
            following = lines[place].strip()
            line = _joined(line, _uncommented(following) if is_array else following)
            place += 1
        line = line.removesuffix(BACKSLASH).rstrip()  # of a script's last line, as bash does
        if here := HERE_DOCUMENT.search(line):
            while place < len(lines) and lines[place].strip() != here[1]:
                place += 1
            place += 1
        begins = bool(BEGINS.match(line))
        ends = bool(ENDS.search(line if begins else line[: len("done")]))
        nested = depth > 0 or begins
        depth = max(0, depth + begins - ends)
        commands.append(Command(first, line, nested))
    return BatchScript(options, tuple(commands))


def read_options(text: str) -> dict[str, str]:
    """The options of sbatch or srun in a text, by their long names."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        words = text.split()
    options, _ = split_options(words)
    return options


def split_options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    place = 0
    while place < len(words) and words[place].startswith("-") and len(words[place]) > 1:
        word = words[place]
        place += 1
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if not equals and name not in FLAGS and place < len(words) and not words[place].startswith("-"):
                value = words[place]
                place += 1
        else:
            name, value = SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            if not value and word[1] in SHORT and place < len(words):
                value = words[place]
                place += 1
        options[name] = value
    return options, words[place:]


def _goes_on(line: str, *, is_array: bool) -> bool:
    """Whether a command continues in the next line: after a backslash, in a list, or in quotes."""
    if line.endswith(BACKSLASH):
        return True
    if is_array and line.count("(") > line.count(")"):
        return True
    return OPEN_QUOTE.fullmatch(line) is not None


def _joined(line: str, following: str) -> str:
    """Two lines as one; a command between quotes, as of `bash -c`, keeps its lines."""
    if line.endswith(BACKSLASH):
        return f"{line[:-1].rstrip()} {following}"
    return f"{line}{' ' if ASSIGNS.match(line) else NEW_LINE}{following}"


def _uncommented(line: str) -> str:
    """Without the comment that ends it: joined with the next line, it would hide that."""
    found = UNCOMMENTED.match(line)
    return found[0].rstrip() if found else line
