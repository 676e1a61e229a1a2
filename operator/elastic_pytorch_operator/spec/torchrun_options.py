"""`spec.torchrun`: torchrun's options as the variables that torchrun, and the agent, take them from."""

import re
from collections.abc import Callable, Mapping
from typing import Any

START_METHODS = ("spawn", "fork", "forkserver")
STREAMS = re.compile(r"[0-3]|[0-9]:[0-3](,[0-9]:[0-3])*")  # torchrun's own: all local ranks, or some
SIGNAL = re.compile(r"SIG[A-Z0-9]+")


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
            raise InvalidOption(name, "is not a field of spec.torchrun: `kubectl explain epj.spec.torchrun` lists them")
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


def _milliseconds(value: Any) -> str | None:
    well_formed = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 3_600_000
    return str(value / 1000) if well_formed else None


def _count(value: Any) -> str | None:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _ranks(value: Any) -> str | None:
    texts = [_count(rank) for rank in value] if isinstance(value, list) else []
    return ",".join(map(str, texts)) if texts and None not in texts else None


def _signals(value: Any) -> str | None:
    names = value if isinstance(value, list) else []
    well_formed = all(isinstance(name, str) and SIGNAL.fullmatch(name) for name in names)
    # It is how Kubernetes ends a pod: an agent that does not handle it saves nothing.
    return ",".join(names) if well_formed and "SIGTERM" in names else None


def _filters(value: Any) -> str | None:
    words = value if isinstance(value, list) else []
    well_formed = words and all(isinstance(word, str) and word for word in words)
    return ",".join(word.replace(",", ",,") for word in words) if well_formed else None


def _flag(value: Any) -> str | None:
    return str(int(value)) if isinstance(value, bool) else None


_OPTIONS: dict[str, tuple[str, Callable[[Any], str | None]]] = {
    "maxRestarts": ("PET_MAX_RESTARTS", _count),
    "monitorIntervalMilliseconds": ("PET_MONITOR_INTERVAL", _milliseconds),
    "startMethod": ("PET_START_METHOD", _choice),
    "role": ("PET_ROLE", _text),
    "redirects": ("PET_REDIRECTS", _streams),
    "tee": ("PET_TEE", _streams),
    "logDir": ("PET_LOG_DIR", _text),
    "localRanksFilter": ("PET_LOCAL_RANKS_FILTER", _ranks),
    # Not PET_LOG_LINE_PREFIX_TEMPLATE: this one, older releases know too.
    "logLinePrefixTemplate": ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", _text),
    "duplicateStdoutFilters": ("PET_DUPLICATE_STDOUT_FILTERS", _filters),
    "duplicateStderrFilters": ("PET_DUPLICATE_STDERR_FILTERS", _filters),
    "eventLogHandler": ("PET_EVENT_LOG_HANDLER", _text),
    "signalsToHandle": ("PET_SIGNALS_TO_HANDLE", _signals),
    "shutdownTimeoutSeconds": ("PET_SHUTDOWN_TIMEOUT", _count),
    "virtualLocalRank": ("PET_VIRTUAL_LOCAL_RANK", _flag),
}
OPTIONS = frozenset(_OPTIONS)
