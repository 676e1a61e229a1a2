"""`status.operatorState`: what a leader leaves for the next one, and nothing else reads.

The API server checks nothing in it, so what cannot be read counts as not written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FIELD = "operatorState"


@dataclass(frozen=True, slots=True)
class OperatorState:
    """What no other part of a job's status, and no other object, holds."""

    schedule_timeouts: int = 0  # in a row
    last_growth_time: str = ""  # RFC 3339; empty: never
    # Of the newest pod whose agent has reported, among those that `status.workers` does not list.
    newest_pod_time: str = ""
    interruption: Mapping[str, Any] = field(default_factory=dict)

    def as_status(self) -> dict[str, Any]:
        found = {
            "scheduleTimeouts": self.schedule_timeouts,
            "lastGrowthTime": self.last_growth_time,
            "newestPodTime": self.newest_pod_time,
            "interruption": self.interruption,
        }
        found = {name: value for name, value in found.items() if value}
        return {FIELD: found} if found else {}


def read_operator_state(status: Mapping[str, Any]) -> OperatorState:
    found = status.get(FIELD)
    fields = found if isinstance(found, Mapping) else {}
    return OperatorState(
        _count(fields.get("scheduleTimeouts")),
        _text(fields.get("lastGrowthTime")),
        _text(fields.get("newestPodTime")),
        open_ if isinstance(open_ := fields.get("interruption"), Mapping) else {},
    )


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
