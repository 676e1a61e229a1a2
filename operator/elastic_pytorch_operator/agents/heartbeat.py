"""Checks what an agent reports. An agent is trusted only in what it says about itself."""

import re
import sys
from itertools import islice
from typing import Any, TypeGuard

from elastic_pytorch_operator.model.observed import (
    MAX_COMPARED,
    MAX_METRICS,
    MAX_PLACES,
    AgentState,
    AgentView,
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
MAX_MEMBERS = 100_000  # of a round; with their processes, the status' int32 takes each rank
MAX_RANKS = MAX_MEMBERS * MAX_PROCESSES
MAX_REAL = sys.float_info.max
# elastic_pytorch/progress/metrics.py has a copy
METRIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@-]{0,62}")
MAX_SAVE_ERROR = 200
MAX_FRAME = 100
OPERATION = re.compile(r"[a-z][a-z0-9_]{0,39}")
UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")


class MalformedHeartbeat(ValueError):
    """The message names the field or the fault."""


def parse_heartbeat(worker: str, body: object, now: float) -> AgentView:
    """What a worker's agent says at a moment, by the fields of docs/internals/protocol.md.

    `AgentRegistry` adds what follows from what it has said before. Raises MalformedHeartbeat.
    """
    if not isinstance(body, dict):
        raise MalformedHeartbeat("the body must be a JSON object")
    try:
        state = AgentState(_text(body, "state"))
    except ValueError as error:
        raise MalformedHeartbeat(f"state: must be one of {', '.join(AgentState)}") from error
    round_, progress = _number(body, "round"), _object(body, "progress") or {}
    places, placed_at = _places(body, now)
    return AgentView(
        worker=worker,
        incarnation=_text(body, "incarnation"),
        state=state,
        round=round_,
        rank=_number(body, "rank", 0, most=MAX_MEMBERS - 1),
        world_size=_number(body, "worldSize", 0, most=MAX_MEMBERS),
        local_world_size=_number(body, "localWorldSize", 1, most=MAX_PROCESSES),
        port=_number(body, "port", 0, most=65535),
        heard_at=now,
        state_since=now,
        restarts=_number(body, "restarts", 0),
        progress=_progress(progress),
        failure=_failure(body, now),
        newest=max(_number(body, "newest", 0), round_),
        started_at=_moment(progress, "startedAgeSeconds", now),
        formed_at=_moment(progress, "formedAgeSeconds", now),
        saving_since=_moment(progress, "savingSeconds", now),
        places=places,
        placed_at=placed_at,
        gives_up=body.get("givesUp") is True,
        keeps_processes=body.get("keepsProcesses") is True,
    )


def _progress(body: dict[str, Any]) -> Progress:
    return Progress(
        step=_optional(body, "step"),
        first_step=_optional(body, "firstStep"),
        total=_optional(body, "total"),
        loss=_optional_real(body, "loss", -MAX_REAL, MAX_REAL),
        checkpoint_step=_optional(body, "checkpointStep"),
        checkpoint_seconds=_optional_real(body, "checkpointSeconds"),
        checkpoints=_optional(body, "checkpoints"),
        work_windows=_optional(body, "workWindows"),
        work_seconds=_seconds_by_local_rank(body.get("workSeconds")),
        step_seconds=_optional_real(body, "stepSeconds"),
        metrics=_metrics(body.get("metrics")),
        failed_saves=_number(body, "failedSaves", 0),
        save_error=_text(body, "saveError", "")[:MAX_SAVE_ERROR],
    )


def _seconds_by_local_rank(value: object) -> tuple[float | None, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise MalformedHeartbeat("progress.workSeconds: must be a list of numbers")
    return tuple(
        None if v is None else _real(v, "progress.workSeconds") for v in value[:MAX_COMPARED]
    )


def _metrics(found: object) -> tuple[tuple[str, float], ...]:
    """The metrics that a status can show. A bad one does not refuse the heartbeat."""
    if not isinstance(found, dict):
        return ()
    good = (
        (name, float(value))
        for name, value in found.items()
        if METRIC_NAME.fullmatch(name) and _is_real(value, -MAX_REAL, MAX_REAL)
    )
    return tuple(islice(good, MAX_METRICS))


def _failure(heartbeat: dict[str, Any], now: float) -> Failure | None:
    if (body := _object(heartbeat, "failure")) is None:
        return None
    exit_code = to_kubelet_code(_number(body, "exitCode", 1, least=-127, most=255))
    words = {
        name: _text(body, name, "") for name in ("signal", "exception", "message", "traceback")
    }
    age = _real(body.get("ageSeconds", 0.0), "failure.ageSeconds")
    return Failure(
        rank=_number(body, "rank", 0, most=MAX_RANKS - 1),
        exit_code=exit_code,
        failed_at=now - age,
        pid=_number(body, "pid", 0),
        # Once for each heartbeat: plans ask several times, and a tenant chooses the words.
        echo=is_echo(exit_code=exit_code, **words),
        **words,
    )


def _places(heartbeat: dict[str, Any], now: float) -> tuple[tuple[Place, ...], float]:
    if (body := _object(heartbeat, "places")) is None:
        return (), now
    places = body.get("byLocalRank")
    if not isinstance(places, list) or not all(isinstance(p, dict) for p in places[:MAX_PLACES]):
        raise MalformedHeartbeat("places.byLocalRank: must be a list of objects")
    age = _real(body.get("ageSeconds"), "places.ageSeconds")
    return tuple(map(_place, places[:MAX_PLACES])), now - age


def _place(body: dict[str, Any]) -> Place:
    """The kind is OTHER if a newer agent reports one that this operator does not know."""
    kind, operation = _text(body, "kind"), _text(body, "operation", "")
    return Place(
        kind=next((known for known in PlaceKind if known == kind), PlaceKind.OTHER),
        operation=operation if OPERATION.fullmatch(operation) else "",
        # For people, in one line of ASCII: the operator's own messages quote it.
        frame=UNPRINTABLE.sub(" ", _text(body, "frame", "")).strip()[:MAX_FRAME],
    )


def _object(body: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise MalformedHeartbeat(f"{name}: must be an object or null")
    return value


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


def _real(value: object, name: str, least: float = 0.0, most: float = MAX_NUMBER) -> float:
    if not _is_real(value, least, most):
        raise MalformedHeartbeat(f"{name}: must be a number from {least:g} to {most:g}")
    return float(value)


def _is_real(value: object, least: float, most: float) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _optional_real(
    progress: dict[str, Any], name: str, least: float = 0.0, most: float = MAX_NUMBER
) -> float | None:
    value = progress.get(name)
    return None if value is None else _real(value, f"progress.{name}", least, most)


def _moment(progress: dict[str, Any], name: str, now: float) -> float | None:
    age = _optional_real(progress, name)
    return None if age is None else now - age


def _optional(body: dict[str, Any], name: str) -> int | None:
    return None if body.get(name) is None else _number(body, name)
