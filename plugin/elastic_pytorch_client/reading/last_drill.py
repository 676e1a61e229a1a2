"""The last drill of a job, as `kubectl epj drill` has left it in an annotation. Who may edit the job can write anything there."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.text import parse_time

ANNOTATION = f"{names.GROUP}/last-drill"  # on a job; `kubectl epj drill` writes it, and only clients read it

T = TypeVar("T")

MAX_BYTES = 8192  # of the annotation
MAX_ENTRIES = 8  # of each list
MAX_CHARACTERS = 300  # of each text
MAX_NUMBER = 1e9


@dataclass(frozen=True, slots=True)
class DrillInterruption:
    """What a fault has cost, once: as an entry of `faults[].interruptions` in the output of `drill -o json`."""

    cause: str
    seconds: float | None
    steps_lost: float | None
    before: float | None
    workers: float | None
    slowest: str


@dataclass(frozen=True, slots=True)
class DrilledFault:
    """What became of one fault.

    Attributes:
        fault: in one word.
        skipped: why it was left out; empty: it was not.
        error: why the job is not known to have recovered; empty: it has.
        whole_seconds: until all wanted workers trained; None: not known.
        interruptions: in their order.
    """

    fault: str
    skipped: str
    error: str
    whole_seconds: float | None
    interruptions: tuple[DrillInterruption, ...]


@dataclass(frozen=True, slots=True)
class LastDrill:
    """A drill.

    Attributes:
        time: when it was over; None: not known.
        recovered: whether the job recovered from all faults.
        faults: in their order.
        advice: what to set, in sentences.
    """

    time: datetime | None
    recovered: bool
    faults: tuple[DrilledFault, ...]
    advice: tuple[str, ...]


def view_drill(metadata: Mapping[str, Any]) -> LastDrill | None:
    """The last drill of a job with this metadata; None if there was none, or if the annotation is something else."""
    text = (metadata.get("annotations") or {}).get(ANNOTATION)
    if not isinstance(text, str) or len(text) > MAX_BYTES:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("faults"), list):
        return None
    return LastDrill(
        parse_time(found.get("time")),
        found.get("recovered") is True,
        _each(found.get("faults"), _fault),
        tuple(filter(None, map(_text, _list(found.get("advice"))))),
    )


def write_drill(drill: Mapping[str, Any], time: str) -> str:
    """The annotation of a drill.

    Args:
        drill: as `drill -o json` prints it.
        time: when it was over, RFC 3339.
    """
    faults = [
        {
            **{name: _text(fault.get(name)) for name in ("fault", "skipped", "error") if fault.get(name)},
            "wholeAfterSeconds": fault.get("wholeAfterSeconds"),
            "interruptions": [
                {name: value for name, value in each.items() if name != "phaseSeconds"}
                for each in _list(fault.get("interruptions"))
            ],
        }
        for fault in drill["faults"]
    ]
    advice = dict.fromkeys(_text(line) for fault in drill["faults"] for line in _list(fault.get("advice")))
    kept = {"time": time, "recovered": drill["recovered"], "faults": faults, "advice": list(advice)[:MAX_ENTRIES]}
    whole = json.dumps(kept, separators=(",", ":"))
    return whole if len(whole) <= MAX_BYTES else json.dumps(kept | {"advice": []}, separators=(",", ":"))


def _fault(found: Mapping[str, Any]) -> DrilledFault:
    return DrilledFault(
        fault=_text(found.get("fault")),
        skipped=_text(found.get("skipped")),
        error=_text(found.get("error")),
        whole_seconds=_number(found.get("wholeAfterSeconds")),
        interruptions=_each(found.get("interruptions"), _interruption),
    )


def _interruption(found: Mapping[str, Any]) -> DrillInterruption:
    return DrillInterruption(
        cause=_text(found.get("cause")),
        seconds=_number(found.get("seconds")),
        steps_lost=_number(found.get("stepsLost")),
        before=_number(found.get("workersBefore")),
        workers=_number(found.get("workers")),
        slowest=_text(found.get("slowestPhase")),
    )


def _each(found: object, read: Callable[[Mapping[str, Any]], T]) -> tuple[T, ...]:
    return tuple(read(each) for each in _list(found) if isinstance(each, dict))


def _list(found: object) -> list[Any]:
    return found[:MAX_ENTRIES] if isinstance(found, list) else []


def _text(found: object) -> str:
    return found[:MAX_CHARACTERS] if isinstance(found, str) else ""


def _number(found: object) -> float | None:
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return found if 0 <= found <= MAX_NUMBER else None
