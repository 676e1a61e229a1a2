"""Programs that start another one in another environment, on other cores, or with signals."""

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

# The agent takes their place as the container's first process.
INITS = {"dumb-init", "tini", "catatonit", "env"}
# With the word that must follow, if any.
ENVIRONMENTS = dict.fromkeys(
    ("uv", "poetry", "pipenv", "pdm", "pixi", "conda", "mamba", "micromamba"), "run"
)
OTHERS = dict.fromkeys(
    ("numactl", "taskset", "nice", "ionice", "stdbuf", "timeout", "nohup"), ""
) | {"nsys": "profile"}
WITH_VALUE = {
    *("-n", "--name", "-p", "--prefix", "--python", "--with", "--project"),
    *("--package", "--group", "--extra", "-o", "--output"),
}


def wrapped_program(words: Sequence[str], starts_something: Callable[[str], bool]) -> int:
    """The index of the program that a wrapper starts; 0: there is no known one."""
    program = PurePosixPath(words[0]).name
    wanted = "" if program in INITS else (ENVIRONMENTS | OTHERS).get(program)
    if wanted is None or (wanted and wanted not in words[1:]):
        return 0
    wrappers = {*INITS, *ENVIRONMENTS, *OTHERS}
    for place, word in enumerate(words[1:], 1):
        starts = starts_something(word) or PurePosixPath(word).name in wrappers
        if starts and words[place - 1] not in WITH_VALUE:
            return place
    return 0


def is_dropped(wrapper: Sequence[str]) -> bool:
    """Whether a wrapper does nothing that the agent's processes need."""
    program, *options = PurePosixPath(wrapper[0]).name, *wrapper[1:]
    plain = all(word.startswith("-") for word in options)
    return program in INITS and plain and not (program == "env" and options)


def chooses_python(wrapper: Sequence[str]) -> bool:
    """Whether a wrapper has a Python of its own, perhaps not the image's `python3`."""
    return PurePosixPath(wrapper[0]).name in ENVIRONMENTS
