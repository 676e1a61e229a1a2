"""What the trials have yielded, and what is said of all of a kind. Pure, but for the file that keeps it."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trial import Figures


@dataclass(frozen=True, slots=True)
class Result:
    """A trial that was made.

    Attributes:
        scenario: its name.
        when: the fault's time of day, in UTC.
        fault: what was done.
        figures: what was measured; None: it failed.
        story: the steps around the fault: (seconds since, step number, world size).
        rounds: what the operator said of each round: (seconds since, reason and cause).
        error: why it failed.
    """

    scenario: str
    when: str
    fault: str
    figures: Figures | None
    story: Sequence[tuple[float, int, int]] = ()
    rounds: Sequence[tuple[float, str]] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle and the worst of some values."""

    median: float
    worst: float


def of_scenario(results: Iterable[Result], scenario: str) -> list[Result]:
    """The results of one kind."""
    return [result for result in results if result.scenario == scenario]


def values(results: Iterable[Result], name: str) -> list[float]:
    """One figure of all results that have it."""
    found = (getattr(result.figures, name) for result in results if result.figures)
    return [value for value in found if value is not None]


def spread(results: Iterable[Result], name: str) -> Spread | None:
    """One figure's spread; None if no result has it."""
    found = values(results, name)
    return Spread(statistics.median(found), max(found)) if found else None


def typical(results: Sequence[Result], name: str) -> Result | None:
    """The result whose figure is the median, or next above it."""
    found = [r for r in results if r.figures and getattr(r.figures, name) is not None]
    found.sort(key=lambda r: float(getattr(r.figures, name)))
    return found[len(found) // 2] if found else None


def write(path: Path, results: Sequence[Result]) -> None:
    """Keep the results in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def read(path: Path) -> list[Result]:
    """Read what was kept; nothing if there is none."""
    return [_result(entry) for entry in json.loads(path.read_text())] if path.exists() else []


def _result(entry: dict[str, Any]) -> Result:
    figures = entry.pop("figures")
    story = [tuple(step) for step in entry.pop("story")]
    rounds = [tuple(told) for told in entry.pop("rounds")]
    return Result(figures=Figures(**figures) if figures else None, story=story, rounds=rounds, **entry)
