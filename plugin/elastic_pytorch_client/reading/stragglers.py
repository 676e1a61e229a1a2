"""The slow ranks of a job, by its status."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Straggler:
    """An entry of `status.stragglers`; numbers are decimals in strings."""

    rank: int
    worker: str
    node: str
    slowdown: str
    median_seconds: str

    def __str__(self) -> str:
        where = f"{self.worker} on {self.node}" if self.node else self.worker
        return (
            f"rank {self.rank} ({where}) works {self.slowdown} times as long in a step as the "
            f"group's median rank, whose work takes {self.median_seconds} s"
        )


def view_stragglers(status: Mapping[str, Any]) -> tuple[Straggler, ...]:
    """The stragglers of a status, the slowest first."""
    return tuple(
        Straggler(
            rank=entry.get("rank", 0),
            worker=entry.get("worker", ""),
            node=entry.get("node", ""),
            slowdown=entry.get("slowdown", ""),
            median_seconds=entry.get("medianSeconds", ""),
        )
        for entry in status.get("stragglers") or ()
    )


def slowest_by_worker(stragglers: Iterable[Straggler]) -> dict[str, Straggler]:
    """The slowest rank of each worker that has one, given the slowest first."""
    found: dict[str, Straggler] = {}
    for straggler in stragglers:
        found.setdefault(straggler.worker, straggler)
    return found
