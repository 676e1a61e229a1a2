"""How a container starts training, and how the agent does the same."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from textwrap import shorten

from elastic_pytorch_client.migration import shell_text
from elastic_pytorch_client.migration.process_variables import (
    LITERAL,
    listed,
    only_sizes_of_the_group,
    unset_variables,
)
from elastic_pytorch_client.migration.remarks import CannotMigrate
from elastic_pytorch_client.migration.torchrun_options import UnknownOption, split_line

PYTHON = re.compile(r"python[\d.]*\Z")
LONGEST_SHOWN = 80
VARIABLE = re.compile(r"\$(?:\((\w+)\)|\{(\w+)\}|(\w+))")
LOCAL_RANK_ARGUMENT = "--local-rank=${local_rank}"  # torch replaces it for each process
TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
TORCHRUN_SCRIPTS = re.compile(r"(?:^|.*/)(?:torchrun|torch/distributed/(?:run|launch)\.py)\Z")
GIVES_LOCAL_RANK = ("torch.distributed.launch", "torch/distributed/launch.py")
PYTHON_OPTIONS_WITH_VALUE = ("-X", "-W")
IN_THE_SPEC = {
    "nnodes": "spec.replicas, minReplicas and maxReplicas",
    "max-restarts": "spec.failurePolicy.maxFailures",
}
# Launchers that form a group of their own, with what is to know of each.
OTHER_LAUNCHERS = {
    name: (
        f"`{name}` starts the processes itself and cannot join the operator's group. Write the "
        f"script into `args`: it reads the variables that torchrun sets{more}"
    )
    for name, more in {
        "accelerate": (
            ". Options of Accelerate go into ACCELERATE_ variables, or into the arguments of "
            "Accelerator()"
        ),
        "deepspeed": "",
        "composer": "",
        "trl": ". For `trl`, that is a script with its trainer",
        "mpirun": ", if it can use the gloo or nccl backend",
        "horovodrun": ", if it uses torch.distributed instead of Horovod",
    }.items()
} | {
    "tune": (
        "`tune run` calls torchrun by itself. Write that in its place, with the path of the "
        "recipe: `torchrun RECIPE.py --config …`"
    ),
}
SHELL_LAUNCHERS = re.compile(
    rf"(?:^|[;&|]|\bexec)\s*(?:\w+=\S*\s+)*(?:{shell_text.INTERPRETER}-m\s*)?"
    rf"({'|'.join(OTHER_LAUNCHERS)})(?:\.\w+)*\s",
    re.MULTILINE,
)
# The agent takes these programs' place as the container's first process.
INITS = {"dumb-init", "tini", "catatonit", "env"}
# Each has a Python of its own.
ENVIRONMENTS = {"uv", "poetry", "pipenv", "pdm", "pixi", "conda", "mamba", "micromamba"}
WRAPPERS = {
    *(*INITS, *ENVIRONMENTS),
    *("numactl", "taskset", "nice", "ionice", "stdbuf", "timeout", "nohup", "nsys"),
}
WRAPPERS_WITH_VALUE = {
    *("-n", "--name", "-p", "--prefix", "--python", "--with", "--project"),
    *("--package", "--group", "--extra", "-o", "--output"),
}
JOINS = (
    "the command is kept, without torchrun's rendezvous options: its torchrun joins the job. Where "
    "the agent starts the script itself (`args` without `command`), it starts faster, and a "
    "failure is reported with its cause"
)


class UnknownLaunch(ValueError):
    """What a command starts is not known, or the agent cannot start it."""


@dataclass(frozen=True, slots=True)
class Launch:
    command: tuple[str, ...]  # empty: the agent starts `args`
    args: tuple[str, ...]
    by: str  # `torchrun` or `python`
    # Torchrun's options that the operator decides, or that move into the spec.
    options: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    counted: bool = False  # the kept command has the number of processes

    @property
    def unbuffered(self) -> bool:
        """Whether Python needs PYTHONUNBUFFERED, as the agent does not run the script."""
        return bool(self.command) or not {"--no-python", "--no_python"}.isdisjoint(self.args)

    @property
    def runs_shell(self) -> bool:
        """Whether each training process is a shell, which has the process's variables."""
        program = PurePosixPath(self.args[1]).name if len(self.args) > 1 else ""
        return self.args[:1] == ("--no-python",) and program in shell_text.SHELLS


def read_launch(
    path: str,
    command: Sequence[str],
    args: Sequence[str],
    entrypoint: Sequence[str] = (),
    values: Mapping[str, str] | None = None,
) -> Launch:
    """Finds how the agent starts a container's program, with the values of its variables.

    Raises:
        CannotMigrate: that is not known, or needs something that the agent lacks.
    """
    for part, given in (("command", command), ("args", args)):
        for word in given:
            if not isinstance(word, str):
                raise CannotMigrate(f"{path}.{part}", f"{word!r} is not a string: put it in quotes")
    words = [*command, *args]
    remarks: list[str] = []
    if not command:
        if entrypoint:
            words = [*entrypoint, *args]
        elif not (args and _starts_something(args[0])):
            raise CannotMigrate(
                f"{path}.command",
                "is missing: the image's ENTRYPOINT starts the training, and the manifest does not "
                "name it. Look it up (`docker inspect IMAGE`) and pass it: --entrypoint 'python "
                "/path/to/train.py'",
            )
        else:
            remarks.append(
                "`args` start the training themselves; the image's ENTRYPOINT does not run any more"
            )
    try:
        launch = _read_words(words)
    except UnknownLaunch as error:
        raise CannotMigrate(f"{path}.command", str(error)) from error
    options = {name: resolve(value, values or {}) for name, value in launch.options.items()}
    launch, words_of_args = replace(launch, options=options), " ".join(launch.args)
    if unset := unset_variables(words_of_args, command=False, by_kubelet=launch.runs_shell):
        raise CannotMigrate(
            f"{path}.args",
            f"use {listed(unset)}, which only the training processes have, after the group is "
            f'formed. Read it in the script: os.environ["{unset[0]}"]',
        )
    if literal := LITERAL.search(" ".join((*launch.command, *launch.args))):
        text = f"passes the text ${literal[1]}, not its value: take the backslash before it away"
        raise CannotMigrate(f"{path}.command", text)
    for name, fields in IN_THE_SPEC.items():
        if not only_sizes_of_the_group(value := launch.options.get(name, "")):
            why = "is dropped, for its value is not in the manifest"
            remarks.append(f"--{name}={value} {why}: compare {fields}")
    if "PET_NODE_RANK" in words_of_args:
        remarks.append(
            "it reads PET_NODE_RANK, which the training processes do not have: read GROUP_RANK"
        )
    return replace(launch, remarks=(*remarks, *launch.remarks))


def resolve(text: str, values: Mapping[str, str]) -> str:
    return VARIABLE.sub(lambda found: values.get(found[1] or found[2] or found[3], found[0]), text)


def _read_words(words: Sequence[str]) -> Launch:
    program = PurePosixPath(words[0]).name
    if program in OTHER_LAUNCHERS:
        raise UnknownLaunch(OTHER_LAUNCHERS[program])
    if place := _wrapped_program(words):
        if _is_dropped(words[:place]):
            return _read_words(words[place:])
        return _read_wrapped(words, place)
    if start := _options_of_torchrun(words):
        return _read_torchrun(words, start)
    if PYTHON.match(program):
        return _read_python(words)
    if program in shell_text.SHELLS:
        return _read_shell(words)
    raise _unknown(words[0], words)


def _wrapped_program(words: Sequence[str]) -> int:
    """The index of the program that a wrapper starts; 0: there is no known one."""
    if PurePosixPath(words[0]).name not in WRAPPERS:
        return 0
    for place, word in enumerate(words[1:], 1):
        starts = _starts_something(word) or PurePosixPath(word).name in WRAPPERS
        if starts and words[place - 1] not in WRAPPERS_WITH_VALUE:
            return place
    return 0


def _is_dropped(wrapper: Sequence[str]) -> bool:
    """Whether a wrapper does nothing that the agent's processes need."""
    program, *options = PurePosixPath(wrapper[0]).name, *wrapper[1:]
    plain = all(word.startswith("-") for word in options)
    return program in INITS and plain and not (program == "env" and options)


def _options_of_torchrun(words: Sequence[str]) -> int:
    """The index of torchrun's options; 0: the words start another program."""
    if PurePosixPath(words[0]).name == "torchrun":
        return 1
    if not PYTHON.match(PurePosixPath(words[0]).name):
        return 0
    place = 1
    while place < len(words) and words[place].startswith("-") and not words[place].startswith("-m"):
        place += 2 if words[place] in PYTHON_OPTIONS_WITH_VALUE else 1
    following = words[place : place + 2]
    if following[:1] == ["-m"]:
        return place + 2 if following[-1] in TORCHRUN_MODULES else 0
    if following and (following[0][2:] in TORCHRUN_MODULES or TORCHRUN_SCRIPTS.match(following[0])):
        return place + 1
    return 0


def _read_torchrun(words: Sequence[str], start: int, *, kept: bool = False) -> Launch:
    try:
        line = split_line(words[start:])
    except UnknownOption as error:
        text = f"{error} is not a known option of torchrun: take it away"
        raise UnknownLaunch(text) from error
    if line.program == len(words) - start:
        raise UnknownLaunch("starts torchrun without a script")
    remarks: tuple[str, ...] = ()
    if (program := words[start + line.program]).startswith("$("):
        without = "write them out, without those of the rendezvous"
        remarks = (f"{program} may hold options of torchrun: {without}",)
    if kept:
        use_env = [words[start + place] for place in line.places.get("use-env", ())]
        stays = (*words[:start], *use_env, *line.kept)
        return Launch(stays, (), "torchrun", line.options, (JOINS, *remarks))
    args = line.kept
    # torch.distributed.launch gives the script another argument by default.
    if words[start - 1].endswith(GIVES_LOCAL_RANK) and "use-env" not in line.options:
        script = line.program - len(line.removed)
        args = (*args[: script + 1], LOCAL_RANK_ARGUMENT, *args[script + 1 :])
    return Launch((), args, "torchrun", line.options, remarks)


def _read_wrapped(words: Sequence[str], place: int) -> Launch:
    wrapper, inner = words[:place], words[place:]
    if start := _options_of_torchrun(inner):
        return _read_torchrun(words, place + start, kept=True)
    if PurePosixPath(inner[0]).name in shell_text.SHELLS:
        launch = _read_shell(inner, plain=False)
    else:
        launch = _read_words(inner)
    if launch.command:
        return replace(launch, command=(*wrapper, *launch.command))
    remarks = launch.remarks
    if PurePosixPath(wrapper[0]).name in ENVIRONMENTS:
        other = f"not with that of {wrapper[0]}: it needs torch there"
        remarks = (*remarks, f"the agent itself runs with the image's `python3`, {other}")
    return Launch((), ("--no-python", *words), launch.by, remarks=remarks)


def _read_python(words: Sequence[str]) -> Launch:
    rest = list(words[1:])
    while rest[:1] == ["-u"]:
        rest = rest[1:]
    if rest[:1] == ["-m"] and (module := "".join(rest[1:2]).partition(".")[0]) in OTHER_LAUNCHERS:
        raise UnknownLaunch(OTHER_LAUNCHERS[module])
    if not rest:
        raise UnknownLaunch("starts a Python without a script")
    remarks: tuple[str, ...] = ()
    if "/" in words[0]:
        remarks = (f"the agent runs the image's `python3`: make sure that it is {words[0]}",)
    # With options that the agent does not know, each process is started as written.
    if rest[0].startswith("-") and rest[0] != "-m":
        return Launch((), ("--no-python", words[0], *rest), "python")
    return Launch((), tuple(rest), "python", remarks=remarks)


def _read_shell(words: Sequence[str], *, plain: bool = True) -> Launch:
    needless = plain and len(words) == 3 and shell_text.PLAIN_FLAGS.match(words[1]) is not None
    if needless and (alone := shell_text.plain_words(words[2])) is not None:
        return _read_words(alone)
    options = (index for index, word in enumerate(words) if index and not word.startswith("-"))
    place = next(options, len(words))
    if place == len(words) or "c" not in words[place - 1].lstrip("-") or place == 1:
        raise _unknown(" ".join(words), words)
    text = words[place]
    try:
        taken = shell_text.take_options(text)
    except UnknownOption as error:
        shown = shorten(str(error), LONGEST_SHOWN, placeholder=" …")
        text = (
            f"calls torchrun in a way that is not known: write {shown} out, as one command with "
            "all of its options"
        )
        raise UnknownLaunch(text) from error
    if taken is not None:
        alone = shell_text.plain_words(taken.text) if needless and not taken.counted else None
        if alone is not None:
            launch = _read_words(alone)  # only the rendezvous needed a shell
            return replace(launch, options=taken.options | launch.options)
        remarks = [JOINS]
        if unset := unset_variables(taken.text, command=True):
            only = "which the container does not have: only the training processes do"
            remarks.append(f"it uses {listed(unset)}, {only}")
        if taken.variables:
            there = "remove torchrun's rendezvous options there, too"
            remarks.append(f"{listed(taken.variables)} may hold more options: {there}")
        if found := shell_text.SET_FOR_TORCHRUN.search(taken.text):
            remarks.append(
                f"it sets {found[1]}, so its torchrun does not join the job: remove that"
            )
        kept = (*words[:place], taken.text, *words[place + 1 :])
        return Launch(kept, (), "torchrun", taken.options, tuple(remarks), taken.counted)
    if found := SHELL_LAUNCHERS.search(text):
        raise UnknownLaunch(OTHER_LAUNCHERS[found[1]])
    if shell_text.PYTHON.search(text):
        text = (
            "each training process runs the whole shell command, once in each group: move what is "
            "to be done once into the image"
        )
        return Launch((), ("--no-python", *words), "python", remarks=(text,))
    raise _unknown(text, words)


def _unknown(program: str, words: Sequence[str]) -> UnknownLaunch:
    shown = shorten(program, LONGEST_SHOWN, placeholder=" …")
    text = (
        f"what {shown} does is not known: write the torchrun or Python command that it runs in its "
        "place"
    )
    if PurePosixPath(words[0]).name not in shell_text.SHELLS:
        run = f"torchrun --no-python {shlex.join(words[:2])}{' …' * (len(words) > 2)}"
        text += f", or `{run}` if each training process is to run it"
    return UnknownLaunch(text)


def _starts_something(word: str) -> bool:
    program = PurePosixPath(word).name
    known = {"torchrun", *shell_text.SHELLS, *OTHER_LAUNCHERS}
    return program in known or bool(PYTHON.match(program))
