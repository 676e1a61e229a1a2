"""What the workers' logs say happened when. Pure: lines in, answers out.

The times are those of the nodes' clocks. On kind these are this machine's, so they compare with the time of an act.
"""

import re
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

START = re.compile(r"\bstart at step (\d+)/\d+  workers (\d+)")
STEP = re.compile(r"\bstep (\d+)/(\d+)  loss ([\d.]+|nan|inf)  workers (\d+)")
DONE = re.compile(r"\bdone at step (\d+)/\d+  validation loss ([\d.]+|nan|inf)")


@dataclass(frozen=True)
class Start:
    """A group has formed and is about to take the step after `step`."""

    at: float
    pod: str
    step: int
    workers: int


@dataclass(frozen=True)
class Step:
    """A group has taken a step."""

    at: float
    pod: str
    step: int
    total: int
    loss: float
    workers: int


@dataclass(frozen=True)
class Done:
    """Training has come to its end."""

    at: float
    pod: str
    step: int
    validation_loss: float


Entry = Start | Step | Done


@dataclass(frozen=True)
class Resumption:
    """Training has gone on in a new group.

    Attributes:
        at: when the new group had taken its first step.
        seconds: from the act to that moment.
        pause: from the last step of the group before to that moment: for so long nothing was learned.
        before: how many workers trained before.
        workers: how many train now.
        steps_lost: how many steps the new group has to take again.
    """

    at: float
    seconds: float
    pause: float
    before: int
    workers: int
    steps_lost: int


def parse_line(pod: str, line: str) -> Entry | None:
    """Read one line of `kubectl logs --timestamps`; None if it is about something else."""
    time, _, text = line.partition(" ")
    try:
        at = datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None
    if found := START.search(text):
        return Start(at, pod, step=int(found[1]), workers=int(found[2]))
    if found := DONE.search(text):
        return Done(at, pod, step=int(found[1]), validation_loss=float(found[2]))
    if found := STEP.search(text):
        return Step(at, pod, step=int(found[1]), total=int(found[2]), loss=float(found[3]), workers=int(found[4]))
    return None


class Timeline:
    """All that the workers of a job have printed, in the order of its times."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._known: set[Entry] = set()

    def add(self, entry: Entry) -> None:
        """Take an entry in, once: a log that is followed again begins again."""
        if entry not in self._known:
            self._known.add(entry)
            insort(self._entries, entry, key=lambda entry: entry.at)

    def last_step(self, before: float = float("inf")) -> Step | None:
        """Return the newest step, or the newest before a time."""
        return next((e for e in reversed(self._entries) if isinstance(e, Step) and e.at < before), None)

    def done(self) -> Done | None:
        """Return the end of the training, if it has come."""
        return next((e for e in self._entries if isinstance(e, Done)), None)

    def first_step(self) -> Step | None:
        """Return the step that the training began with."""
        return next((e for e in self._entries if isinstance(e, Step)), None)

    def steps_per_second(self, window: float = 3.0) -> float | None:
        """Return the pace of the steps of the last few seconds; None before there are two of one group."""
        newest = self.last_step()
        if newest is None:
            return None
        oldest = newest
        for entry in reversed(self._entries):
            if isinstance(entry, Start) or entry.at < newest.at - window:
                break
            if isinstance(entry, Step):
                oldest = entry
        return (newest.step - oldest.step) / (newest.at - oldest.at) if newest.at > oldest.at else None

    def resumption(self, acted_at: float, workers: int | None = None) -> Resumption | None:
        """Find where training went on after an act: in the first new group, or the first of so many workers."""
        for start, step in self._first_steps():
            if start.at <= acted_at or workers not in (None, start.workers):
                continue
            last = self.last_step(before=start.at)
            return Resumption(
                at=step.at,
                seconds=step.at - acted_at,
                pause=step.at - (last.at if last else acted_at),
                before=last.workers if last else 0,
                workers=start.workers,
                steps_lost=max(0, last.step - start.step) if last else 0,
            )
        return None

    def _first_steps(self) -> Iterator[tuple[Start, Step]]:
        """Yield each group's start with its first step; a group that broke before its first step has none."""
        start: Start | None = None
        for entry in self._entries:
            if isinstance(entry, Start):
                start = entry
            elif start and isinstance(entry, Step) and entry.pod == start.pod:
                yield start, entry
                start = None
