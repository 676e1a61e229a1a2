"""`spec.torchrun`: those of torchrun's options that people set, as the variables that torchrun, and the agent, take them from.

The container's `env` sets any other option by its PET_ variable.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

START_METHODS = ("spawn", "fork", "forkserver")
STREAMS = re.compile(r"[0-3]|[0-9]:[0-3](,[0-9]:[0-3])*")  # torchrun's own: all local ranks, or some


class InvalidOption(ValueError):
    """An option that cannot be handed to torchrun.

    Attributes:
        name: the field in spec.torchrun; empty: all of it.
        problem: what is wrong with it.
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}".strip())
        self.name = name
        self.problem = problem


def torchrun_variables(options: object) -> dict[str, str]:
    """The environment variables for the options in `spec.torchrun`.

    Args:
        options: the field's value.

    Raises:
        InvalidOption: one of them is unknown or malformed.
    """
    if not isinstance(options, Mapping):
        raise InvalidOption("", f"must be an object, not {options!r}")
    variables = {}
    for name, value in options.items():
        if name not in _OPTIONS:
            raise InvalidOption(
                name, "is not a field of spec.torchrun: set the PET_ variable of any other option in the container's env"
            )
        variable, read = _OPTIONS[name]
        text = read(value)
        if text is None:
            raise InvalidOption(name, f"must not be {value!r}: `kubectl explain epj.spec.torchrun.{name}` says what it may be")
        variables[variable] = text
    return variables


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _choice(value: Any) -> str | None:
    return value if value in START_METHODS else None


def _streams(value: Any) -> str | None:
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    return text if STREAMS.fullmatch(text) else None


def _count(value: Any) -> str | None:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


_OPTIONS: dict[str, tuple[str, Callable[[Any], str | None]]] = {
    "maxRestarts": ("PET_MAX_RESTARTS", _count),
    "startMethod": ("PET_START_METHOD", _choice),
    "redirects": ("PET_REDIRECTS", _streams),
    "tee": ("PET_TEE", _streams),
    "logDir": ("PET_LOG_DIR", _text),
    # Not PET_LOG_LINE_PREFIX_TEMPLATE: this one, older releases know too.
    "logLinePrefixTemplate": ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", _text),
    "shutdownTimeoutSeconds": ("PET_SHUTDOWN_TIMEOUT", _count),
}
OPTIONS = frozenset(_OPTIONS)
