"""`spec.torchrun`: torchrun's options as the variables that torchrun, and the agent, take them from."""

import re
from collections.abc import Callable, Mapping
from typing import Any

# What the operator decides, and the field that says what it decides. crds/ has the same words for the API server.
DECIDED = {
    "nnodes": "is decided by spec.minReplicas and spec.maxReplicas",
    "nprocPerNode": "is decided by spec.nprocPerNode",
    "nodeRank": "is decided by the operator, anew for each group",
    "standalone": "is decided by spec.maxReplicas: 1 makes a job of a single node",
    "rdzvBackend": "is decided by spec.rendezvous",
    "rdzvEndpoint": "is decided by spec.rendezvous",
    "rdzvId": "is decided by the job itself: its UID",
    "rdzvConf": "is decided by spec.rendezvous and spec.resizePolicy",
    "masterAddr": "is decided by the operator: rank 0's address in each group",
    "masterPort": "is decided by spec.rendezvous.port",
    "localAddr": "is decided by the operator: each pod's own address",
    "module": "belongs in the container's args, in front of the module's name: -m",
    "noPython": "belongs in the container's args, in front of the program: --no-python",
    "runPath": "belongs in the container's args, in front of the script: --run-path",
}

START_METHODS = ("spawn", "fork", "forkserver")
STREAMS = re.compile(r"[0-3]|[0-9]:[0-3](,[0-9]:[0-3])*")  # torchrun's own: all local ranks, or some
SECONDS = re.compile(r"[0-9]{1,4}([.][0-9]{1,6})?")
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
        InvalidOption: one of them is unknown, malformed, or the operator's to decide.
    """
    if not isinstance(options, Mapping):
        raise InvalidOption("", f"must be an object, not {options!r}")
    variables = {}
    for name, value in options.items():
        if name in DECIDED:
            raise InvalidOption(name, DECIDED[name])
        if name not in _OPTIONS:
            raise InvalidOption(name, "is no option of torchrun that a job may set")
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


def _seconds(value: Any) -> str | None:
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    return text if SECONDS.fullmatch(text) and 0 < float(text) <= 3600 else None


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
    "monitorInterval": ("PET_MONITOR_INTERVAL", _seconds),
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
    "shutdownTimeout": ("PET_SHUTDOWN_TIMEOUT", _count),
    "virtualLocalRank": ("PET_VIRTUAL_LOCAL_RANK", _flag),
}
OPTIONS = frozenset(_OPTIONS)
