"""The log of the interruptions that are over, `status.recentInterruptions`: up to 64 entries, and those beyond condensed. Pure.

It is a field of the job, so it ends with the job, survives each leader, and can be read by all who can read the job. Writes of other fields
leave it out, as a patch has only what changes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elastic_pytorch_operator.planning.reporting.interruption_phases import PHASES, slowest_phase

MAX_ENTRIES = 64  # 18 kilobytes
MAX_SINGLE = 8  # the newest, which are never condensed

Entry = Mapping[str, Any]


def extend_log(old: Sequence[Entry], last: Entry) -> list[Entry]:
    """Returns the log, oldest first, with one more entry.

    Beyond 64 entries, two become one, which has their number and their sums: the oldest ones of the same cause and day (UTC). If there
    are none, it is the oldest two of the same cause.

    Args:
        old: the entries there are.
        last: the newest one, which may be among them already.
    """
    log = [*(entry for entry in old if entry.get("round") != last.get("round")), last]
    while len(log) > MAX_ENTRIES:
        log = _condense(log)
    return log


def _condense(log: Sequence[Entry]) -> list[Entry]:
    """The log with one entry less."""
    earlier, later = _first_pair(log, _cause_and_day) or _first_pair(log, _cause) or (0, 0)
    if earlier == later:  # no two have the same cause: there are fewer causes than entries
        return list(log[1:])
    merged = _merge(log[earlier], log[later])
    return [*log[:earlier], *log[earlier + 1 : later], merged, *log[later + 1 :]]


def _first_pair(log: Sequence[Entry], alike: Callable[[Entry], object]) -> tuple[int, int] | None:
    """The places of the oldest two entries that are alike, apart from the newest."""
    seen: dict[object, int] = {}
    for place, entry in enumerate(log[:-MAX_SINGLE]):
        if (earlier := seen.setdefault(alike(entry), place)) != place:
            return earlier, place
    return None


def _cause_and_day(entry: Entry) -> object:
    return entry.get("cause"), str(entry.get("time", ""))[:10]


def _cause(entry: Entry) -> object:
    return entry.get("cause")


def _merge(earlier: Entry, later: Entry) -> dict[str, Any]:
    """Two entries as one: their sums, the group before the first of them, and what the last of them led to."""
    both = earlier, later
    told = [each.get("phaseSeconds") or {} for each in both]
    phases = {phase: _sum(told, phase) for phase in PHASES if any(phase in each for each in told)}
    merged: dict[str, Any] = {**later, "count": sum(int(each.get("count", 1)) for each in both)}
    merged["seconds"] = f"{_sum(both, 'seconds'):.2f}"
    if any("stepsLost" in each for each in both):
        merged["stepsLost"] = sum(int(each.get("stepsLost", 0)) for each in both)
    if phases:
        merged |= {"phaseSeconds": {phase: f"{seconds:.2f}" for phase, seconds in phases.items()}}
        merged["slowestPhase"] = slowest_phase(phases)
    if "from" in earlier:
        merged["from"] = earlier["from"]
    return merged


def _sum(entries: Sequence[Entry], name: str) -> float:
    """The sum of a decimal number in a string; what is none counts as 0."""
    return sum(map(_number, (entry.get(name, "0") for entry in entries)))


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0
