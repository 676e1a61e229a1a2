"""Conditions by the Kubernetes API conventions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.api import names

# The API allows 32,768, but each write of a status stores all messages.
MAX_MESSAGE = 4096


@dataclass(frozen=True, slots=True)
class Condition:
    type: str
    true: bool | None  # None: unknown
    reason: str
    message: str


def find_condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    conditions: Sequence[Mapping[str, Any]] = status.get("conditions") or ()
    for each in conditions:
        if each.get("type") == type_:
            return each
    return {}


def transition_time(before: Mapping[str, Any], status: str, time: str) -> str:
    kept = before.get("lastTransitionTime") if before.get("status") == status else None
    return kept or time


def is_true(status: Mapping[str, Any], type_: str) -> bool:
    return find_condition(status, type_).get("status") == "True"


def has_ended(status: Mapping[str, Any]) -> bool:
    return is_true(status, names.COMPLETE) or is_true(status, names.FAILED)


def not_ended() -> list[Condition]:
    return [
        Condition(type_, False, names.NOT_ENDED, "the job has not ended")
        for type_ in (names.COMPLETE, names.FAILED)
    ]


def ended(reason: str, message: str, *, complete: bool) -> list[Condition]:
    rest = "the job is complete" if complete else "the job has failed"
    how = names.COMPLETE if complete else names.FAILED
    types = (
        *(names.RUNNING, names.RESIZING, names.DEGRADED),
        *(names.SUSPENDED, names.COMPLETE, names.FAILED),
    )
    return [
        Condition(type_, type_ == how, reason, message if type_ == how else rest) for type_ in types
    ]


def merge_conditions(
    old: Mapping[str, Any], conditions: Sequence[Condition], *, generation: int, time: str
) -> list[dict[str, Any]]:
    merged = []
    for condition in conditions:
        before = find_condition(old, condition.type)
        status = {True: "True", False: "False", None: "Unknown"}[condition.true]
        merged.append(
            {
                "type": condition.type,
                "status": status,
                "reason": condition.reason,
                "message": condition.message[:MAX_MESSAGE],
                "lastTransitionTime": transition_time(before, status, time),
                "observedGeneration": generation,
            }
        )
    return merged
