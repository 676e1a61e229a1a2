"""Programs that start another one and change only what is around it: its environment, its cores, its signals."""

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

# The agent is the container's first process in their place.
INITS = {"dumb-init", "tini", "catatonit", "env"}
# With the word that has to follow them, if there is one.
ENVIRONMENTS = {
    "uv": "run",
    "poetry": "run",
    "pipenv": "run",
    "pdm": "run",
    "pixi": "run",
    "conda": "run",
    "mamba": "run",
    "micromamba": "run",
}
OTHERS = {
    "numactl": "",
    "taskset": "",
    "nice": "",
    "ionice": "",
    "stdbuf": "",
    "timeout": "",
    "nohup": "",
    "nsys": "profile",
}
WITH_VALUE = {
    "-n",
    "--name",
    "-p",
    "--prefix",
    "--python",
    "--with",
    "--project",
    "--package",
    "--group",
    "--extra",
    "-o",
    "--output",
}


def wrapped_program(words: Sequence[str], starts_something: Callable[[str], bool]) -> int:
    """Where the program stands that a wrapper starts; 0: the command has no wrapper, or what it starts is not known."""
    program = PurePosixPath(words[0]).name
    wanted = "" if program in INITS else (ENVIRONMENTS | OTHERS).get(program)
    if wanted is None or (wanted and wanted not in words[1:]):
        return 0
    wrappers = {*INITS, *ENVIRONMENTS, *OTHERS}
    for place, word in enumerate(words[1:], 1):
        if words[place - 1] not in WITH_VALUE and (
            starts_something(word) or PurePosixPath(word).name in wrappers
        ):
            return place
    return 0


def is_dropped(wrapper: Sequence[str]) -> bool:
    """Whether a wrapper does nothing that the agent's processes need."""
    return (
        PurePosixPath(wrapper[0]).name in INITS
        and all(word.startswith("-") for word in wrapper[1:])
        and not (PurePosixPath(wrapper[0]).name == "env" and len(wrapper) > 1)
    )


def chooses_python(wrapper: Sequence[str]) -> bool:
    """Whether a wrapper has a Python of its own, perhaps another one than the image's `python3`."""
    return PurePosixPath(wrapper[0]).name in ENVIRONMENTS
