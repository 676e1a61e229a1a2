"""What has happened to a job's group: `status.history`, at most 4 KiB of JSON.

An entry with a `cause` is a change of the group, one without is a sample of loss and speed between
two changes. What no longer fits is thinned so that the sums of interruptions, their seconds and the
steps lost stay right.
"""

import json
from collections.abc import Sequence
from typing import Any

from elastic_pytorch_operator.api.numbers import parse_quantity
from elastic_pytorch_operator.api.times import seconds_between
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.model.status_changes import Entry, changes_of
from elastic_pytorch_operator.planning.reporting.interruption import Interruptions

MAX_BYTES = 4096
MAX_SAMPLES = 24
WHOLE = 4  # the newest changes
MAX_CAUSE_CHARACTERS = 32
MEASURED = ("loss", "stepsPerSecond")


def count_interruptions(history: Sequence[Entry]) -> int:
    return sum(int(entry.get("count", 1)) for entry in history if "seconds" in entry)


def add_changes(
    history: Sequence[Entry],
    interruptions: Interruptions,
    round_: Round | None,
    progress: Entry,
    time: str,
) -> list[Entry]:
    """Adds changes that are over; a round without a reason comes from a leader that knew more."""
    ends = [] if interruptions.last is None else [interruptions.last.as_status()]
    if interruptions.current is None and round_ is not None and round_.reason:
        change = {"time": time, "round": round_.number, "replicas": round_.size}
        ends.append({**change, "cause": round_.reason})
    for entry in ends:
        newest = max((known.get("round", 0) for known in changes_of(history)), default=0)
        if entry["round"] > newest:
            entry["cause"] = entry["cause"][:MAX_CAUSE_CHARACTERS]
            history = _thin([*history, {**entry, **_measured(progress)}])
    return list(history)


def add_sample(history: Sequence[Entry], progress: Entry, time: str) -> list[Entry]:
    """Adds a sample if the last one is as old as a 24th of the time since the first entry."""
    measured = _measured(progress)
    if not history or not measured:
        return list(history)
    known = [entry for entry in history if any(name in entry for name in MEASURED)]
    sample = {"time": time, **measured}
    if known and _seconds(known[-1], sample) * MAX_SAMPLES < _seconds(history[0], sample):
        return list(history)
    return _thin([*history, sample])


def _measured(progress: Entry) -> dict[str, Any]:
    return {name: progress[name] for name in MEASURED if name in progress}


def _seconds(earlier: Entry, later: Entry) -> float:
    return seconds_between(str(earlier.get("time")), str(later.get("time")))


def _thin(history: list[Entry]) -> list[Entry]:
    while len(_samples(history)) > MAX_SAMPLES:
        history = _without_a_sample(history)
    while len(json.dumps(history, separators=(",", ":"))) > MAX_BYTES and (
        less := _shorten(history)
    ):
        history = less
    return history


def _shorten(history: Sequence[Entry]) -> list[Entry]:
    """Empty: there is nothing that may go."""
    old = [place for place, entry in enumerate(history) if "cause" in entry][1:-WHOLE]
    phased = next((place for place in old if "phaseSeconds" in history[place]), None)
    if phased is not None:
        entry = {name: value for name, value in history[phased].items() if name != "phaseSeconds"}
        return [*history[:phased], entry, *history[phased + 1 :]]
    pair = _alike(history, old)
    if pair is None and _samples(history):
        return _without_a_sample(history)
    if pair is None and len(old) > 1:
        pair = old[0], old[1]
    if pair is None:
        return []
    earlier, later = pair
    merged = _merge(history[earlier], history[later])
    return [*history[:earlier], *history[earlier + 1 : later], merged, *history[later + 1 :]]


def _alike(history: Sequence[Entry], places: Sequence[int]) -> tuple[int, int] | None:
    seen: dict[object, int] = {}
    for place in places:
        if (earlier := seen.setdefault(history[place]["cause"], place)) != place:
            return earlier, place
    return None


def _merge(earlier: Entry, later: Entry) -> dict[str, Any]:
    """The later change, with the sums of both."""
    interruptions = [entry for entry in (earlier, later) if "seconds" in entry]
    merged = dict(later)
    if interruptions:
        merged["count"] = sum(int(entry.get("count", 1)) for entry in interruptions)
        seconds = sum(parse_quantity(entry["seconds"]) or 0.0 for entry in interruptions)
        merged["seconds"] = f"{seconds:.2f}"
    if any("stepsLost" in entry for entry in interruptions):
        merged["stepsLost"] = sum(int(entry.get("stepsLost", 0)) for entry in interruptions)
    return merged


def _samples(history: Sequence[Entry]) -> list[int]:
    return [place for place, entry in enumerate(history) if "cause" not in entry]


def _without_a_sample(history: Sequence[Entry]) -> list[Entry]:
    """The sample whose neighbours are closest to each other goes, and the newest one last."""
    samples, last = _samples(history), len(history) - 1
    gone = min(
        samples[:-1] or samples,
        key=lambda place: _seconds(history[max(0, place - 1)], history[min(place + 1, last)]),
    )
    return [*history[:gone], *history[gone + 1 :]]
