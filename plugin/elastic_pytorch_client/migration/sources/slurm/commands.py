"""The commands of a batch script: which one starts the training, in which environment, and what else they do."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from elastic_pytorch_client.migration import shell_text
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.slurm.script import Command

ASSIGNMENT = re.compile(r"""(\w+)=((?:'[^']*'|"(?:[^"\\]|\\.)*"|\$\([^)]*\)|\$\{[^}]*\}|`[^`]*`|[^\s'"`])*)\s*""")
ARRAY = re.compile(r"(\w+)=\((.*)\)\s*\Z", re.DOTALL)
WHOLE_ARRAY = re.compile(r'"?\$\{(\w+)\[[@*]\]\}"?')
VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
LAUNCHER = re.compile(r"(?<![\w./=-])(?:[\w./-]*/)?(?:torchrun|python[\d.]*|accelerate|deepspeed|bash|sh)(?=\s)")
# What sets nothing up that a pod would miss.
QUIET = {
    *("date", "echo", "env", "exit", "hostname", "ls", "nvidia-smi", "printenv", "printf", "pwd", "scontrol", "set", "shopt"),
    *(
        "sleep",
        "squeue",
        "trap",
        "true",
        "ulimit",
        "unset",
        "wait",
        "which",
        "{",
        "}",
        "fi",
        "done",
        "esac",
        "then",
        "do",
        "else",
    ),
}
CONTROL = {"if", "elif", "for", "while", "until", "case", "function", "select"}
SOFTWARE = {"module", "ml", "conda", "mamba", "micromamba", "source", ".", "eval", "pip", "spack", "pyenv"}
# Each training process has the variable that torchrun sets, where a task of srun has Slurm's.
OF_A_TASK = {"SLURM_PROCID": "$RANK", "SLURM_LOCALID": "$LOCAL_RANK", "SLURM_NODEID": "$GROUP_RANK"}


@dataclass(frozen=True, slots=True)
class Start:
    """A command that may start the training.

    Attributes:
        line: its number.
        text: what runs on each node, for a shell.
        by_srun: whether srun starts it, on all nodes.
        before: what stands before it, such as srun with its options.
    """

    line: int
    text: str
    by_srun: bool
    before: str = ""

    @property
    def likelihood(self) -> int:
        """How likely it is the training, beside others."""
        if shell_text.TORCHRUN.search(self.text):
            return 2
        return 1 if self.by_srun else 0


@dataclass(slots=True)
class Surroundings:
    """What the commands before the training set up.

    Attributes:
        variables: all whose value is known.
        environment: those that processes see.
        folder: where the training starts; empty: where sbatch was called.
        unknown: what processes see with a value that only the script knows.
    """

    variables: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    unknown: list[str] = field(default_factory=list)


def read_commands(commands: Sequence[Command], known: Mapping[str, str], remarks: Remarks) -> tuple[Start, Surroundings]:
    """Finds the command that starts the training; a remark names each other one that a pod would miss.

    Args:
        commands: of the script.
        known: Slurm's variables.
        remarks: added to.

    Raises:
        CannotMigrate: there is none, or more than one, or it stands in a loop or a condition.
    """
    around = Surroundings({**OF_A_TASK, **known})
    starts: list[Start] = []
    for command in commands:
        for part in split_commands(resolve(command.text, around.variables)):
            rest = _assign(part, around) if not command.nested else _assign_perhaps(part, around)
            start = _start(command.line, rest)
            if start is not None and command.nested and start.likelihood:
                text = "the training starts in a loop, a condition or a function. Write it as one command, and a file for each training"
                raise CannotMigrate(f"line {command.line}", text)
            if start is not None and not command.nested:
                starts.append(start)
            elif rest:
                _say(command, rest, around, remarks)
    if not starts:
        raise CannotMigrate("the script", "starts no training that is known: no torchrun, no Python, and no shell by srun")
    likeliest = max(start.likelihood for start in starts)
    found = [start for start in starts if start.likelihood == likeliest]
    if len(found) > 1:
        lines = ", ".join(str(start.line) for start in found)
        raise CannotMigrate(f"lines {lines}", "each starts a training: write a file for each of them")
    for start in starts:
        if start is not found[0]:
            remarks.add(f"line {start.line}", f"`{start.text}` is dropped: run it before, as a Job of its own")
    return found[0], around


def resolve(text: str, variables: Mapping[str, str]) -> str:
    """A text with the variables in it replaced by their values, where these are known."""
    text = WHOLE_ARRAY.sub(lambda found: variables.get(f"{found[1]}[@]", found[0]), text)
    return VARIABLE.sub(lambda found: variables.get(found[1] or found[3], found[0] if found[2] is None else found[2]), text)


def split_commands(text: str) -> list[str]:
    """The commands of a line, without redirections, pipes to others, and comments."""
    return [command for command in _commands(text) if command]


def _commands(text: str) -> Iterator[str]:
    quote, depth, start, cut = "", 0, 0, None
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote and text[place - 1] != "\\" else quote
        elif letter in "'\"`":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif depth:
            continue
        elif letter == "#" and (not place or text[place - 1].isspace()):
            yield _trimmed(text[start : place if cut is None else cut])
            return
        elif letter in "|<>" and cut is None:
            numbered = letter != "|" and re.search(r"(?:^|\s)[012&]\Z", text[start:place])
            cut = place - bool(numbered)
        elif letter in ";&" and text[place - 1 : place] != ">" and text[place + 1 : place + 2] != ">":
            yield _trimmed(text[start : place if cut is None else cut])
            start, cut = place + 1, None
    yield _trimmed(text[start:cut])


def _trimmed(text: str) -> str:
    """Without the rest of `&&`."""
    return text.strip().lstrip("&").strip()


def _assign(part: str, around: Surroundings) -> str:
    """Takes assignments from the start of a command.

    Returns:
        The command that follows them.
    """
    exported = re.match(r"(?:export|declare\s+-x)\s+", part)
    rest = part[exported.end() :] if exported else part
    if array := ARRAY.match(rest):
        around.variables[f"{array[1]}[@]"] = array[2].strip()
        return ""
    own: dict[str, str] = {}
    while found := ASSIGNMENT.match(rest):
        own[found[1]] = found[2]
        rest = rest[found.end() :]
    for name, value in own.items():
        try:
            plain = " ".join(shlex.split(value)) if value[:1] in "'\"" and value else value
        except ValueError:
            plain = value
        if "$" in plain or "`" in plain:
            if "$(" in plain or "`" in plain:
                around.variables.pop(name, None)
            else:  # what torchrun's options name is perhaps not needed
                around.variables[name] = plain
            if exported or rest:
                around.environment.pop(name, None)
                around.unknown.append(name)
            continue
        around.variables[name] = plain
        if exported or rest:
            around.environment[name] = plain
    if exported:
        for name in rest.split():
            if "$" not in around.variables.get(name, "$"):
                around.environment[name] = around.variables[name]
        return ""
    return rest


def _assign_perhaps(part: str, around: Surroundings) -> str:
    """The same in a loop or a condition: what is assigned there has no value that is known."""
    own = Surroundings({})
    rest = _assign(part, own)
    for name in own.variables:
        around.variables.pop(name, None)
    around.unknown += [name for name in own.environment if name not in around.environment]
    return rest


def _start(line: int, part: str) -> Start | None:
    """The start of a training that a command may be."""
    by_srun = bool(re.match(r"(?:time\s+)?srun\s", part))
    part = part.removeprefix("exec ")
    found = LAUNCHER.search(part) if by_srun else LAUNCHER.match(part) or shell_text.TORCHRUN.search(part)
    if found is None:
        return None
    text, before = part[found.start() :], part[: found.start()]
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    shell = PurePosixPath(words[0]).name in shell_text.SHELLS
    if shell and len(words) > 2 and re.match(r"-\w*c\Z", words[1]):
        text = words[2]
    elif shell and not by_srun:
        return None
    return Start(line, text, by_srun, before)


def _say(command: Command, part: str, around: Surroundings, remarks: Remarks) -> None:
    """Says what becomes of a command that starts no training."""
    path = f"line {command.line}"
    program, _, rest = part.partition(" ")
    if program in QUIET or (command.nested and program in CONTROL):
        return
    if command.nested:
        remarks.add(path, f"`{part}` is dropped: it stands in a loop, a condition or a function")
    elif program == "cd" and rest.startswith("/"):
        around.folder = rest.strip("'\"")
    elif program in SOFTWARE:
        remarks.add(path, f"`{part}` is dropped: put the software into the image")
    else:
        remarks.add(path, f"`{part}` is dropped: do it in the image, in the script, or in an init container")
