"""The changes of a job's group since the job's start, by its status."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from elastic_pytorch_client.reading.text import parse_number, parse_time, parse_whole

# In the order of the operator (docs/internals/rounds.md).
PHASES = ("detection", "stop", "wait", "prepare", "start", "init", "firstStep")


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """An entry of `status.history`: a change of the group, or without a cause a sample of speed.

    Its fields are those of the entry; an absent one is None, 0 or empty.

    Attributes:
        at: its `time`.
        before: the number of workers that trained before.
        workers: its `replicas`.
    """

    at: datetime | None = None
    round: int = 0
    cause: str = ""
    before: int | None = None
    workers: int | None = None
    seconds: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    steps_lost: int | None = None
    count: int = 1
    loss: float | None = None
    steps_per_second: float | None = None

    @property
    def slowest(self) -> str:
        """The slowest phase with its seconds, in words; empty: no phase is known."""
        phase, seconds = max(self.phases.items(), key=lambda item: item[1], default=("", 0.0))
        return f"{name_phase(phase)} ({seconds:.1f} s)" if phase else ""


def name_phase(phase: str) -> str:
    return "first step" if phase == "firstStep" else phase


def view_history(entries: Iterable[Mapping[str, Any]]) -> tuple[HistoryEntry, ...]:
    found, before = [], None
    for entry in entries:
        workers, phases = parse_whole(entry.get("replicas")), entry.get("phaseSeconds") or {}
        seconds = {phase: parse_number(phases.get(phase)) for phase in PHASES}
        found.append(
            HistoryEntry(
                at=parse_time(entry.get("time")),
                round=entry.get("round", 0),
                cause=entry.get("cause", ""),
                before=before if workers is not None else None,
                workers=workers,
                seconds=parse_number(entry.get("seconds")),
                phases={phase: taken for phase, taken in seconds.items() if taken is not None},
                steps_lost=parse_whole(entry.get("stepsLost")),
                count=entry.get("count", 1),
                loss=parse_number(entry.get("loss")),
                steps_per_second=parse_number(entry.get("stepsPerSecond")),
            )
        )
        before = workers if workers is not None else before
    return tuple(found)
