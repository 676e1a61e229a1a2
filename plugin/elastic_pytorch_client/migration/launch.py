"""How a container starts training, and how the agent starts the same."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from elastic_pytorch_client.migration import shell_text
from elastic_pytorch_client.migration.remarks import CannotMigrate
from elastic_pytorch_client.migration.torchrun_options import UnknownOption, split_line

PYTHON = re.compile(r"python[\d.]*\Z")
LOCAL_RANK_ARGUMENT = "--local-rank=${local_rank}"  # torch replaces it for each process
TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
# What each training process has in its environment, and the container has not.
OF_A_PROCESS = re.compile(r"\$(?:[({])?((?:LOCAL_|GROUP_|NODE_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_ADDR|MASTER_PORT|PET_\w+)\b")
OF_A_KUBELET = re.compile(r"\$\(((?:LOCAL_|GROUP_|NODE_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_ADDR|MASTER_PORT|PET_\w+)\)")
OTHER_LAUNCHERS = {
    "accelerate": (
        "`accelerate launch` forms its own group and cannot join the operator's. Write the script into `args`: Accelerate reads the "
        "variables that torchrun sets. Its options go into ACCELERATE_ variables, or into the arguments of Accelerator()"
    ),
    "deepspeed": (
        "the `deepspeed` launcher connects to other nodes with SSH. Write the script into `args`: deepspeed.init_distributed() reads "
        "the variables that torchrun sets"
    ),
    "mpirun": "mpirun starts its own processes. Write the script into `args` if it can use the gloo or nccl backend",
    "horovodrun": "horovodrun starts its own processes, and Horovod does not use torch.distributed",
}
SHELL_LAUNCHERS = re.compile(r"(?:^|[;&|]|\bexec)\s*(accelerate\s+launch|deepspeed|mpirun|horovodrun)\s", re.MULTILINE)

SECOND_CLASS = (
    "Where the agent starts the script itself (`args` without `command`), it starts faster, and a failure is reported with "
    "its cause"
)


@dataclass(frozen=True, slots=True)
class Launch:
    """What starts training.

    Attributes:
        command: of the container; empty: the agent starts `args`.
        args: of the container.
        by: `torchrun`, `python`, or `unknown`.
        options: those of torchrun that the operator decides or that move into the spec, by their names.
        remarks: what to say about it.
        unbuffered: whether Python has to be told not to buffer its output; where the agent runs the script, it is not.
    """

    command: tuple[str, ...]
    args: tuple[str, ...]
    by: str
    options: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    unbuffered: bool = False


def read_launch(path: str, command: Sequence[str], args: Sequence[str], entrypoint: Sequence[str] = ()) -> Launch:
    """Works out how the agent starts what a container starts.

    Args:
        path: of the container, for remarks.
        command: of the container.
        args: of the container.
        entrypoint: of the image, for a container without a command.

    Raises:
        CannotMigrate: it cannot be worked out, or needs something that the agent does not have.
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
                "is missing: the image's ENTRYPOINT starts the training, and the manifest does not name it. Look it up (`docker "
                "inspect IMAGE`) and pass it: --entrypoint 'python /path/to/train.py'",
            )
        else:
            remarks.append("`args` start the training themselves; the image's ENTRYPOINT does not run any more")
    launch = _read_words(path, words)
    variables = OF_A_KUBELET if _runs_shell(launch.args) else OF_A_PROCESS
    if not launch.command and (found := variables.search(" ".join(launch.args))):
        raise CannotMigrate(
            f"{path}.args",
            f"use {found[1]}, which exists only in the training processes, after the group is formed. Read it in the script: "
            f'os.environ["{found[1]}"]',
        )
    return replace(launch, remarks=(*remarks, *launch.remarks))


def _read_words(path: str, words: Sequence[str]) -> Launch:
    program = PurePosixPath(words[0]).name
    if program in OTHER_LAUNCHERS:
        raise CannotMigrate(f"{path}.command", OTHER_LAUNCHERS[program])
    if program == "torchrun":
        return _read_torchrun(path, words, 1)
    if PYTHON.match(program):
        return _read_python(path, words)
    if program in shell_text.SHELLS:
        return _read_shell(path, words)
    return _left(words, f"what {words[0]} does is not known")


def _read_torchrun(path: str, words: Sequence[str], start: int, *, local_rank: bool = False) -> Launch:
    """What torchrun's words start.

    Args:
        path: of the container, for remarks.
        words: the whole command.
        start: of torchrun's options.
        local_rank: whether it is torch.distributed.launch, which gives the script another argument unless told not to.
    """
    try:
        line = split_line(words[start:])
    except UnknownOption as error:
        return _left(words, f"{error} is not a known option of torchrun")
    if line.program == len(words) - start:
        raise CannotMigrate(f"{path}.command", "starts torchrun without a script")
    no_python = any(word in ("--no-python", "--no_python") for word in line.kept)
    args = line.kept
    if local_rank and "use-env" not in line.options:
        script = line.program - len(line.removed)
        args = (*args[: script + 1], LOCAL_RANK_ARGUMENT, *args[script + 1 :])
    return Launch((), args, "torchrun", line.options, unbuffered=no_python)


def _read_python(path: str, words: Sequence[str]) -> Launch:
    rest = list(words[1:])
    while rest[:1] == ["-u"]:
        rest = rest[1:]
    if rest[:1] == ["-m"] and rest[1:2] and rest[1] in TORCHRUN_MODULES:
        return _read_torchrun(path, words, len(words) - len(rest) + 2, local_rank=rest[1] == TORCHRUN_MODULES[1])
    if rest[:1] == ["-m"] and rest[1:2] == ["accelerate.commands.launch"]:
        raise CannotMigrate(f"{path}.command", OTHER_LAUNCHERS["accelerate"])
    if not rest:
        raise CannotMigrate(f"{path}.command", "starts a Python without a script")
    remarks = () if "/" not in words[0] else (f"the agent runs the image's `python3`: make sure that it is {words[0]}",)
    if rest[0].startswith("-") and rest[0] != "-m":  # options that the agent does not know: each process is started as written
        return Launch((), ("--no-python", words[0], *rest), "python", unbuffered=True)
    return Launch((), tuple(rest), "python", remarks=remarks)


def _read_shell(path: str, words: Sequence[str]) -> Launch:
    if len(words) == 3 and shell_text.PLAIN_FLAGS.match(words[1]):
        plain = shell_text.plain_words(words[2])
        if plain is not None:
            return _read_words(path, plain)
    place = next((index for index, word in enumerate(words) if index and not word.startswith("-")), len(words))
    if place == len(words) or "c" not in words[place - 1].lstrip("-") or place == 1:
        return _left(words, f"what {' '.join(words)} does is not known")
    text = words[place]
    taken = shell_text.take_options(text)
    if taken is not None:
        remarks = ["the command is kept, without torchrun's rendezvous options: its torchrun joins the job. " + SECOND_CLASS]
        if found := OF_A_PROCESS.search(taken.text):
            remarks.append(f"it uses {found[1]}, which is not set outside of the training processes")
        kept = (*words[:place], taken.text, *words[place + 1 :])
        return Launch(kept, (), "torchrun", taken.options, tuple(remarks), unbuffered=True)
    if shell_text.TORCHRUN.search(text):
        return _left(words, "it calls torchrun with options that are not known here")
    if found := SHELL_LAUNCHERS.search(text):
        raise CannotMigrate(f"{path}.command", OTHER_LAUNCHERS[found[1].split()[0]])
    if shell_text.calls_python(text):
        text = "each training process runs the whole shell command, once in each group: move what is to be done once into the image"
        return Launch((), ("--no-python", *words), "python", remarks=(text,), unbuffered=True)
    return _left(words, "what it does is not known")


def _left(words: Sequence[str], why: str) -> Launch:
    text = (
        f"{why}, so the command is kept. If it calls torchrun, remove torchrun's rendezvous options: it then joins the job. If it "
        f"starts Python without torchrun, write `args: [--no-python, {', '.join(words[:2])}{', ...' if len(words) > 2 else ''}]` "
        "instead of `command`"
    )
    return Launch(tuple(words), (), "unknown", remarks=(text,), unbuffered=True)


def _starts_something(word: str) -> bool:
    program = PurePosixPath(word).name
    return program in {"torchrun", *shell_text.SHELLS, *OTHER_LAUNCHERS} or bool(PYTHON.match(program))


def _runs_shell(args: Sequence[str]) -> bool:
    """Whether each training process is a shell, which knows the process's variables."""
    return args[:1] == ("--no-python",) and len(args) > 1 and PurePosixPath(args[1]).name in shell_text.SHELLS
