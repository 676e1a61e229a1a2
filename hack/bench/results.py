"""What the trials have yielded: the figures of each, and the spread of those of one kind. Pure, but for the file that keeps them."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from measure.records import Declared, PodCreated, Started, Step, Taken
from measure.timeline import Timeline

QUIET_SECONDS = 3.0  # of steps before the fault, for the picture
Story = Sequence[tuple[float, int, int]]


@dataclass(frozen=True, slots=True)
class Figures:
    """A trial in numbers; times in seconds. None: it did not happen."""

    trains_again: float | None  # from the fault to the first step of the new group
    pause: float | None  # from the last step before to the first step after
    steps_lost: int | None  # steps that were done again
    whole: float | None  # from the fault to the first step at the wanted size
    replaced: float | None  # from the fault to the operator's making of another pod
    longest_gap: float | None  # the longest time between two steps after the fault
    detect: float | None  # from the fault to the operator's declaring of the round that first trained again
    start: float | None  # from there to the last of its members' worker processes being started
    init: float | None  # from there to rank 0's having joined its group
    first_step: float | None  # from there to its first step
    rounds: int  # that were declared
    restarts: int  # container restarts, and disappearances, of pods that had nothing to do with the fault
    failures: int  # counted against the job


@dataclass(frozen=True, slots=True)
class Result:
    """A trial that was made."""

    scenario: str
    when: str  # the fault's time of day, in UTC
    fault: str  # what was done
    figures: Figures | None  # None: it failed
    story: Story = ()  # the steps around the fault: (seconds since, step number, world size)
    rounds: Sequence[tuple[float, str]] = ()  # what the operator said of each: (seconds since, reason and cause)
    error: str = ""  # why it failed


class Spread(NamedTuple):
    median: float
    worst: float


def measure(timeline: Timeline, fault_at: float, *, wanted: int, restarts: int = 0, failures: int = 0) -> Figures:
    """Returns a trial's figures, from all that had happened when the job had the wanted number of workers again."""
    again, whole = timeline.resumption(fault_at), timeline.resumption(fault_at, wanted)
    rounds = timeline.every(Declared, after=fault_at)
    declared = next((d for d in reversed(rounds) if again and d.at < again.init.at), None)
    began, started = (declared.at, last_start(timeline, declared)) if declared else (None, None)
    created = timeline.every(PodCreated, after=fault_at)
    steps = [*timeline.every(Step, until=fault_at)[-1:], *timeline.every(Step, after=fault_at)]
    phases = (fault_at, began, started, again.init.at if again else None, again.step.at if again else None)
    detect, start, init, first_step = (seconds(*phase) for phase in pairwise(phases))
    return Figures(
        trains_again=seconds(fault_at, again.step.at) if again else None,
        pause=seconds(again.last.at, again.step.at) if again else None,
        steps_lost=again.steps_lost if again else None,
        whole=seconds(fault_at, whole.step.at) if whole else None,
        replaced=seconds(fault_at, created[0].at) if created else None,
        longest_gap=max((later.at - earlier.at for earlier, later in pairwise(steps)), default=None),
        detect=detect,
        start=start,
        init=init,
        first_step=first_step,
        rounds=len(rounds),
        restarts=restarts,
        failures=failures,
    )


def last_start(timeline: Timeline, declared: Declared) -> float | None:
    """Returns when the last member of a round had started its worker processes; None before all have."""
    taken = {record.pod: record.at for record in timeline.every(Taken) if record.round == declared.round}
    starts: dict[str, float] = {}
    for record in timeline.every(Started):
        if record.at >= taken.get(record.pod, record.at + 1):
            starts.setdefault(record.pod, record.at)
    return max(starts.values()) if len(starts) == len(declared.members) else None


def story(timeline: Timeline, fault_at: float) -> Story:
    steps = timeline.every(Step, after=fault_at - QUIET_SECONDS)
    return [(round(step.at - fault_at, 3), step.number, step.world) for step in steps]


def seconds(begin: float | None, end: float | None) -> float | None:
    """Returns the time between two moments, if both came."""
    return None if begin is None or end is None else round(end - begin, 3)


def of_scenario(results: Iterable[Result], scenario: str) -> list[Result]:
    return [result for result in results if result.scenario == scenario]


def values(results: Iterable[Result], name: str) -> list[float]:
    """Returns one figure of all results that have it."""
    found = (getattr(result.figures, name) for result in results if result.figures)
    return [value for value in found if value is not None]


def spread(results: Iterable[Result], name: str) -> Spread | None:
    """Returns one figure's spread; None if no result has it."""
    found = values(results, name)
    return Spread(statistics.median(found), max(found)) if found else None


def typical(results: Iterable[Result], name: str) -> Result | None:
    """Returns the result whose figure is the median, or next above it."""
    found = sorted((r for r in results if values([r], name)), key=lambda r: values([r], name))
    return found[len(found) // 2] if found else None


def write(path: Path, results: Sequence[Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def read(path: Path) -> list[Result]:
    return [_result(entry) for entry in json.loads(path.read_text())] if path.exists() else []


def _result(entry: dict[str, Any]) -> Result:
    figures = Figures(**entry["figures"]) if entry["figures"] else None
    lists = {name: [tuple(item) for item in entry[name]] for name in ("story", "rounds")}
    return Result(**entry | lists | {"figures": figures})
