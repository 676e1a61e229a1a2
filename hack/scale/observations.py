"""The load generator's lines as figures; moments are in seconds since 1970. Pure."""

import json
from collections import defaultdict
from typing import Any, NamedTuple


class Told(NamedTuple):
    """All agents of a job that lived when the first one received a round have received it."""

    at: float
    size: int


class Observations:
    def __init__(self) -> None:
        self.ticks: list[dict[str, Any]] = []
        self.told: dict[str, list[Told]] = defaultdict(list)
        self.heard: dict[str, float] = {}  # when all agents of a job were answered since `listen`
        self.broken: list[str] = []  # errors by which the generator itself has lost agents
        self._lines = 0

    def read(self, line: str) -> None:
        """Reads a line once, as a log that is followed again begins again; ignores non-JSON."""
        try:
            said = json.loads(line)
            number = said["line"]
        except (ValueError, KeyError, TypeError):
            return
        if number <= self._lines:
            return
        self._lines = number
        match said:
            case {"event": "tick"}:
                self.ticks.append(said)
            case {"event": "told", "at": at, "job": job, "size": size}:
                self.told[job].append(Told(at, size))
            case {"event": "listen"}:
                self.heard.clear()
            case {"event": "heard", "at": at, "job": job}:
                self.heard.setdefault(job, at)
            case {"event": "broken", "error": error}:
                self.broken.append(error)

    def count(self, what: str) -> int:
        return int(self.ticks[-1].get(what, 0)) if self.ticks else 0

    def reached(self, what: str, count: int) -> float | None:
        """When something was first counted this often, to a fifth of a second; None: not yet."""
        return next((tick["at"] for tick in self.ticks if tick.get(what, 0) >= count), None)

    def first(self, job: str, *, after: float = 0.0, size: int = 0) -> float | None:
        """When a job first received a round of at least a size after a moment; None: not yet."""
        rounds = (t for t in self.told.get(job, ()) if t.at > after and t.size >= size)
        return next((told.at for told in rounds), None)

    def whole(self, job: str, size: int) -> bool:
        return job in self.told and self.told[job][-1].size == size

    def between(self, begin: float, end: float) -> dict[str, Any]:
        ticks = [tick for tick in self.ticks if begin <= tick["at"] <= end]
        if len(ticks) < 2:
            return {}
        first, last = ticks[0], ticks[-1]
        seconds = last["at"] - first["at"]
        medians = sorted(tick["waits"]["median"] for tick in ticks if tick["waits"])
        answered = last.get("heartbeats", 0) - first.get("heartbeats", 0)
        errors = last["errors"].items()
        return {
            "heartbeats_per_second": round(answered / seconds, 1),
            "heartbeats_failed": last.get("failed", 0) - first.get("failed", 0),
            "errors": {name: count - first["errors"].get(name, 0) for name, count in errors},
            "heartbeat_seconds_median": medians[len(medians) // 2] if medians else 0.0,
            "heartbeat_seconds_worst": max(
                (tick["waits"]["worst"] for tick in ticks if tick["waits"]), default=0.0
            ),
            "generator_late_seconds_worst": max(tick["late"] for tick in ticks),
        }
