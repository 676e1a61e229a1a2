"""Checks what an agent reports. An agent is trusted only in what it says about itself."""

import re
import sys
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeGuard

from elastic_pytorch_operator.model.observed import (
    MAX_COMPARED,
    MAX_METRICS,
    MAX_PLACES,
    AgentState,
    Failure,
    Place,
    PlaceKind,
    Progress,
)
from elastic_pytorch_operator.model.peer_errors import is_echo
from elastic_pytorch_operator.spec.failure_rules import to_kubelet_code
from elastic_pytorch_operator.spec.resources import MAX_PROCESSES

MAX_TEXT = 4096
MAX_NUMBER = 2**53
MAX_REAL = sys.float_info.max
# elastic_pytorch/progress/metrics.py has a copy
METRIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@-]{0,62}")
MAX_SAVE_ERROR = 200
MAX_FRAME = 100
OPERATION = re.compile(r"[a-z][a-z0-9_]{0,39}")
UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")


class MalformedHeartbeat(ValueError):
    """The message names the field or the fault."""


@dataclass(slots=True)
class Heartbeat:
    """The fields of docs/internals/protocol.md. Freezing would triple the time to make one."""

    incarnation: str
    state: AgentState
    round: int
    rank: int
    world_size: int
    local_world_size: int
    port: int
    restarts: int
    progress: Progress
    failure: Failure | None
    failure_age_seconds: float
    newest: int = 0
    started_age_seconds: float | None = None
    formed_age_seconds: float | None = None
    saving_seconds: float | None = None
    places: tuple[Place, ...] = ()
    places_age_seconds: float = 0.0
    gives_up: bool = False
    keeps_processes: bool = False

    def failure_at(self, now: float) -> Failure | None:
        failure = self.failure
        if failure is None:
            return None
        return replace(failure, failed_at=now - self.failure_age_seconds)


def parse_heartbeat(body: object) -> Heartbeat:
    if not isinstance(body, dict):
        raise MalformedHeartbeat("the body must be a JSON object")
    try:
        state = AgentState(_text(body, "state"))
    except ValueError as error:
        raise MalformedHeartbeat(f"state: must be one of {', '.join(AgentState)}") from error
    failure, age = _failure(body.get("failure"))
    progress = body.get("progress") or {}
    places, places_age = _places(body.get("places"))
    return Heartbeat(
        incarnation=_text(body, "incarnation"),
        state=state,
        round=_number(body, "round"),
        rank=_number(body, "rank", 0),
        world_size=_number(body, "worldSize", 0),
        local_world_size=_number(body, "localWorldSize", 1, most=MAX_PROCESSES),
        port=_number(body, "port", 0, most=65535),
        restarts=_number(body, "restarts", 0),
        progress=_progress(body.get("progress")),
        failure=failure,
        failure_age_seconds=age,
        newest=_number(body, "newest", 0),
        started_age_seconds=_seconds(progress, "startedAgeSeconds"),
        formed_age_seconds=_seconds(progress, "formedAgeSeconds"),
        saving_seconds=_seconds(progress, "savingSeconds"),
        places=places,
        places_age_seconds=places_age,
        gives_up=body.get("givesUp") is True,
        keeps_processes=body.get("keepsProcesses") is True,
    )


def _progress(body: object) -> Progress:
    if body is None:
        return Progress()
    if not isinstance(body, dict):
        raise MalformedHeartbeat("progress: must be an object or null")
    return Progress(
        step=_optional(body, "step"),
        first_step=_optional(body, "firstStep"),
        total=_optional(body, "total"),
        loss=None
        if body.get("loss") is None
        else _real(body["loss"], "progress.loss", least=-MAX_REAL),
        checkpoint_step=_optional(body, "checkpointStep"),
        checkpoint_seconds=_seconds(body, "checkpointSeconds"),
        checkpoints=_optional(body, "checkpoints"),
        work_windows=_optional(body, "workWindows"),
        work_seconds=_seconds_by_local_rank(body.get("workSeconds")),
        step_seconds=_seconds(body, "stepSeconds"),
        metrics=_metrics(body.get("metrics")),
        failed_saves=_number(body, "failedSaves", 0),
        save_error=_text(body, "saveError", "")[:MAX_SAVE_ERROR],
    )


def _seconds_by_local_rank(value: object) -> tuple[float | None, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise MalformedHeartbeat("progress.workSeconds: must be a list of numbers")
    compared = value[:MAX_COMPARED]
    return tuple(
        None if v is None else _real(v, "progress.workSeconds", least=0.0, most=MAX_NUMBER)
        for v in compared
    )


def _metrics(found: object) -> tuple[tuple[str, float], ...]:
    """The metrics that a status can show. A bad one does not refuse the heartbeat."""
    if not isinstance(found, dict):
        return ()
    good = (
        (name, float(value))
        for name, value in found.items()
        if isinstance(name, str)
        and METRIC_NAME.fullmatch(name)
        and _is_real(value, -MAX_REAL, MAX_REAL)
    )
    return tuple(islice(good, MAX_METRICS))


def _failure(body: object) -> tuple[Failure | None, float]:
    if body is None:
        return None, 0.0
    if not isinstance(body, dict):
        raise MalformedHeartbeat("failure: must be an object or null")
    exit_code = to_kubelet_code(_number(body, "exitCode", 1, least=-127, most=255))
    words = {
        name: _text(body, name, "") for name in ("signal", "exception", "message", "traceback")
    }
    failure = Failure(
        rank=_number(body, "rank", 0),
        exit_code=exit_code,
        failed_at=0.0,
        pid=_number(body, "pid", 0),
        # Once for each heartbeat: plans ask several times, and a tenant chooses the words.
        echo=is_echo(exit_code=exit_code, **words),
        **words,
    )
    return failure, _real(
        body.get("ageSeconds", 0.0), "failure.ageSeconds", least=0.0, most=MAX_NUMBER
    )


def _places(body: object) -> tuple[tuple[Place, ...], float]:
    if body is None:
        return (), 0.0
    if not isinstance(body, dict):
        raise MalformedHeartbeat("places: must be an object or null")
    places = body.get("byLocalRank")
    if not isinstance(places, list):
        raise MalformedHeartbeat("places.byLocalRank: must be a list of objects")
    age = _real(body.get("ageSeconds"), "places.ageSeconds", least=0.0, most=MAX_NUMBER)
    return tuple(map(_place, places[:MAX_PLACES])), age


def _place(body: object) -> Place:
    """The kind is OTHER if a newer agent reports one that this operator does not know."""
    if not isinstance(body, dict):
        raise MalformedHeartbeat("places.byLocalRank: must be a list of objects")
    kind, operation = _text(body, "kind"), _text(body, "operation", "")
    return Place(
        kind=next((known for known in PlaceKind if known == kind), PlaceKind.OTHER),
        operation=operation if OPERATION.fullmatch(operation) else "",
        frame=_line(body, "frame", MAX_FRAME),
    )


def _line(body: dict[str, Any], name: str, most: int) -> str:
    """A text for people, in one line of ASCII: the operator's own messages quote it."""
    return UNPRINTABLE.sub(" ", _text(body, name, "")).strip()[:most]


def _text(body: dict[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise MalformedHeartbeat(f"{name}: must be a string")
    if value.isascii():
        return value[:MAX_TEXT]
    # Half a surrogate pair would be read back differently, and so be written again each time.
    return value[:MAX_TEXT].encode(errors="replace").decode()


def _number(
    body: dict[str, Any],
    name: str,
    default: int | None = None,
    *,
    least: int = 0,
    most: int = MAX_NUMBER,
) -> int:
    value = body.get(name, default)
    if type(value) is not int or not least <= value <= most:  # a bool is an int, too
        raise MalformedHeartbeat(f"{name}: must be a whole number from {least} to {most}")
    return value


def _real(value: object, name: str, *, least: float, most: float = MAX_REAL) -> float:
    if not _is_real(value, least, most):
        raise MalformedHeartbeat(f"{name}: must be a number from {least:g} to {most:g}")
    return float(value)


def _is_real(value: object, least: float, most: float) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _seconds(progress: dict[str, Any], name: str) -> float | None:
    value = progress.get(name)
    return None if value is None else _real(value, f"progress.{name}", least=0.0, most=MAX_NUMBER)


def _optional(body: dict[str, Any], name: str) -> int | None:
    return None if body.get(name) is None else _number(body, name)
