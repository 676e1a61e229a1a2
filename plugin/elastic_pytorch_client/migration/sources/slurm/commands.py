"""Which command of a batch script starts the training, and in which environment."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from elastic_pytorch_client.migration import shell_text
from elastic_pytorch_client.migration.launch import OTHER_LAUNCHERS
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.shell_words import words_from
from elastic_pytorch_client.migration.sources.slurm.script import (
    Command,
    read_commands_of,
    split_options,
    words_of,
)

DECLARED = re.compile(r"(?:(?:export|declare|typeset|local|readonly)(?:\s+-\w+)*\s+)?")
ASSIGNMENT = re.compile(
    r"""(\w+)(\+?)=((?:'[^']*'|"(?:[^"\\]|\\.)*"|\$\([^)]*\)|\$\{[^}]*\}|`[^`]*`|[^\s'"`])*)\s*"""
)
ELEMENT = re.compile(r"(\w+)\[[^\]]*\]\+?=")
ARRAY = re.compile(r"(\w+)(\+?)=\((.*)\)\s*\Z", re.DOTALL)
WHOLE_ARRAY = re.compile(r'(")?\$\{(\w+)\[[@*]\]\}(?(1)")')
VARIABLE = re.compile(
    r"\$(?:\{(?P<name>\w+)(?::?(?P<operator>[-=])(?P<default>(?:[^{}]|\$\{[^{}]*\})*))?\}|(?P<plain>\w+))"
)
LAUNCHER = re.compile(
    rf"(?<![\w./=-])(?:[\w./-]*/)?(?:torchrun|python[\d.]*|{'|'.join(OTHER_LAUNCHERS)}|bash|sh)(?=\s)"
)
OWN_LAUNCHER = re.compile(rf"(?:[\w./-]*/)?(?:{'|'.join({*OTHER_LAUNCHERS} - {'mpirun'})})\s")
SHELL_SCRIPT = re.compile(r"[\w./-]+\.sh\b")
# They set nothing up that a pod would miss.
QUIET = {
    *("[", "[[", ":", "clear", "date", "echo", "exit", "hostname", "ls", "nvidia-smi", "popd"),
    *("printenv", "printf", "pwd", "read", "scontrol", "set", "shopt", "sleep", "squeue", "test"),
    *("trap", "true", "ulimit", "unset", "wait", "which"),
}
# What srun starts on all nodes beside a training.
BESIDE = {"cat", "chmod", "cp", "ln", "mkdir", "mv", "pkill", "rm", "rsync", "sync", "tar", "touch"}
UNTOUCHED = "\0"
# Slurm's variable of a task, and torchrun's of a process.
OF_A_TASK = {
    "SLURM_PROCID": "${RANK}",
    "SLURM_LOCALID": "${LOCAL_RANK}",
    "SLURM_NODEID": "${GROUP_RANK}",
}


@dataclass(frozen=True, slots=True)
class Start:
    line: int
    text: str  # what runs on each node, for a shell
    by_srun: bool  # on all nodes
    before: str  # such as srun with its options
    nested: bool  # in a loop, a condition or a function

    @property
    def likelihood(self) -> int:
        if shell_text.TORCHRUN.search(self.text) or OWN_LAUNCHER.match(self.text):
            return 2
        return 1 if self.by_srun or self.text.startswith("mpirun ") else 0


@dataclass(slots=True)
class Surroundings:
    variables: dict[str, str]  # all whose value is known
    environment: dict[str, str] = field(default_factory=dict)  # those that processes see
    folder: str = ""  # empty: where sbatch was called
    # Seen by processes, with a value that only the script knows.
    unknown: list[str] = field(default_factory=list)


def read_commands(
    commands: Sequence[Command], known: Mapping[str, str], remarks: Remarks
) -> tuple[Start, Surroundings]:
    """Finds the command that starts the training; remarks on others that a pod would miss."""
    around = Surroundings({**OF_A_TASK, **known})
    starts: list[Start] = []
    for command in commands:
        text = resolve(command.text, around.variables)
        # A variable may hold several commands, and text that is only printed may look like some.
        for part in [] if command.text.partition(" ")[0] in QUIET else split_commands(text):
            rest = _assign_perhaps(part, around) if command.nested else _assign(part, around)
            start = _start(command, rest)
            if start is not None and (start.likelihood or not start.nested):
                if command.unread:
                    raise CannotMigrate(
                        f"line {command.line}",
                        "has what is no plain bash here: write the words out",
                    )
                starts.append(start)
            elif rest:
                _say(command, rest, around, remarks)
    if not starts:
        raise CannotMigrate(
            "the script",
            "starts no training that is known: no torchrun, no Python, and nothing by srun",
        )
    likeliest = max(start.likelihood for start in starts)
    found = [start for start in starts if start.likelihood == likeliest]
    if nested := next((start for start in found if start.nested), None):
        launcher = PurePosixPath(nested.text.partition(" ")[0]).name
        text = (
            "the training starts in a loop, a condition or a function. Write it as one command, "
            "and a file for each training"
        )
        raise CannotMigrate(f"line {nested.line}", OTHER_LAUNCHERS.get(launcher, text))
    if len(found) > 1:
        lines = ", ".join(str(start.line) for start in found)
        text = (
            "each starts a training: write a file for each of them, and remove those that start "
            "none"
        )
        raise CannotMigrate(f"lines {lines}", text)
    for start in starts:
        if start is not found[0]:
            remarks.add(
                f"line {start.line}",
                f"`{start.text}` is dropped: run it before, as a Job of its own",
            )
    return found[0], around


def resolve(text: str, variables: dict[str, str]) -> str:
    """A text with the known variables replaced; `${NAME:=VALUE}` makes one known."""

    def value(found: re.Match[str]) -> str:
        name, default = found["name"] or found["plain"], found["default"]
        default = default and resolve(default, variables)
        if found["operator"] == "=":
            variables.setdefault(name, default)
        return variables.get(name, found[0] if default is None else default)

    text = WHOLE_ARRAY.sub(lambda found: variables.get(f"{found[2]}[@]", found[0]), text)
    return VARIABLE.sub(value, text)


def split_commands(text: str) -> list[str]:
    """The commands of a text, without redirections, later parts of pipes, and comments."""
    return [command.text for command in read_commands_of(text)]


def _assign(part: str, around: Surroundings) -> str:
    """Takes assignments from the start of a command, and returns the rest."""
    declared = DECLARED.match(part)
    words = declared[0].split() if declared else []
    exported = words[:1] == ["export"] or any("x" in word for word in words[1:])
    rest = part[declared.end() :] if declared else part
    if array := ARRAY.match(rest):
        _add(around, f"{array[1]}[@]", array[3].strip(), " " if array[2] else None)
        return ""
    if element := ELEMENT.match(rest):
        around.variables.pop(f"{element[1]}[@]", None)
        return ""
    own: dict[str, tuple[str, str]] = {}
    while found := ASSIGNMENT.match(rest):
        own[found[1]] = (found[2], found[3])
        rest = rest[found.end() :]
    for name, (more, value) in own.items():
        try:
            plain = " ".join(shlex.split(value)) if value[:1] in "'\"" and value else value
        except ValueError:
            plain = value
        worked_out = "$(" in plain or "`" in plain
        # Mostly options of the rendezvous.
        if not worked_out or LAUNCHER.match(plain):
            _add(around, name, plain, "" if more else None)
        else:
            around.variables.pop(name, None)
        if not (exported or rest):
            continue
        if "$" not in plain and "`" not in plain and name in around.variables:
            around.environment[name] = around.variables[name]
        else:
            around.environment.pop(name, None)
            if not LAUNCHER.match(plain):
                around.unknown.append(name)
    if words:
        for name in rest.split() if exported else ():
            if "$" not in around.variables.get(name, "$"):
                around.environment[name] = around.variables[name]
        return ""
    return rest


def _add(around: Surroundings, name: str, value: str, separator: str | None) -> None:
    if separator is None:
        around.variables[name] = value
    elif name in around.variables:
        around.variables[name] += separator + value


def _assign_perhaps(part: str, around: Surroundings) -> str:
    """Assigns in a loop or a condition: the value is then not known."""
    own = Surroundings(dict.fromkeys(around.variables, UNTOUCHED))
    rest = _assign(part, own)
    for name in [name for name in around.variables if own.variables.get(name) != UNTOUCHED]:
        del around.variables[name]
    around.unknown += [name for name in own.environment if name not in around.environment]
    return rest


def _start(command: Command, part: str) -> Start | None:
    """The training that a command may start: srun's program, or a known one."""
    part = part.removeprefix("exec ")
    by_srun = bool(re.match(r"(?:time\s+)?srun\s", part))
    if part.partition(" ")[0] in QUIET:
        return None
    if by_srun:
        found = LAUNCHER.search(part)
        place = found.start() if found else _program_of_srun(part)
        if not found and PurePosixPath((part[place:].split() or [":"])[0]).name in QUIET | BESIDE:
            return None
    elif (
        found := LAUNCHER.match(part)
        or SHELL_SCRIPT.match(part)
        or shell_text.TORCHRUN.search(part)
    ):
        place = found.start()
    else:
        return None
    text, before = part[place:], part[:place]
    words = words_of(text)
    if (
        len(words) > 2
        and PurePosixPath(words[0]).name in shell_text.SHELLS
        and re.match(r"-\w*c\Z", words[1])
    ):
        # there, the outer shell takes a backslash away, which shlex leaves
        quoted = re.match(r"\S+\s+\S+\s+\"", text)
        text = re.sub(r"\\([$`])", r"\1", words[2]) if quoted else words[2]
    return Start(command.line, text, by_srun, before, command.nested)


def _program_of_srun(part: str) -> int:
    spans = words_from(part, part.index("srun") + len("srun"), len(part))
    _, program = split_options([part[start:end] for start, end in spans])
    return spans[-max(1, len(program))][0] if spans else len(part)


def _say(command: Command, part: str, around: Surroundings, remarks: Remarks) -> None:
    path = f"line {command.line}"
    program, _, rest = part.partition(" ")
    if program in QUIET | {"env"}:
        return
    if command.nested:
        remarks.add(path, f"`{part}` is dropped: it stands in a loop, a condition or a function")
    elif program in ("cd", "pushd") and rest.startswith("/"):
        around.folder = rest.strip("'\"")
    else:
        remarks.add(
            path, f"`{part}` is dropped: do it in the image, in the script, or in an init container"
        )
