"""How a job's training went, for plots: `status.history`, at most about a kilobyte however long the job runs.

One entry an interval. When there are too many, each pair becomes one and the interval twice as long, so the whole life of a job is kept,
more and more coarsely. The columns are strings of numbers: `kubectl describe` shows a line each, and not one for each number.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_operator.api.timestamps import seconds_between

FIRST_INTERVAL_SECONDS = 5
MAX_ENTRIES = 64
UNKNOWN = "-"
COLUMNS = ("steps", "losses", "worlds", "recoveries")
# Of these, every change is written at once: where nothing was written, nothing has changed.
STEADY = ("worlds", "recoveries")


def extend_history(
    old: Mapping[str, Any], *, time: str, world: int, recoveries: int, progress: Mapping[str, Any]
) -> dict[str, Any]:
    """The history with what is known now as its newest entry.

    Args:
        old: the history there is, empty at first.
        time: now, RFC 3339.
        world: how many processes train.
        recoveries: how often the group has formed again.
        progress: `status.progress`, empty if there is none.

    Returns:
        The whole history; empty as long as nothing has ever trained.
    """
    columns, interval, since = _columns(old), _interval(old), str(old.get("since", time))
    if columns is None or not interval:
        if not world:
            return {}
        columns, interval, since = {name: [] for name in COLUMNS}, FIRST_INTERVAL_SECONDS, time
    place = int(seconds_between(since, time)) // interval
    while place >= MAX_ENTRIES:
        interval *= 2
        place //= 2
        columns = {name: _halved(column) for name, column in columns.items()}
    now = {
        "steps": str(progress.get("step", UNKNOWN)),
        "losses": str(progress.get("loss", UNKNOWN)),
        "worlds": str(world),
        "recoveries": str(recoveries),
    }
    history: dict[str, Any] = {"since": since, "intervalSeconds": interval}
    for name, column in columns.items():
        padding = column[-1] if column and name in STEADY else UNKNOWN
        before = [*column, *[padding] * (place - len(column))][:place]
        # A clock that was set back leaves what is there.
        later = column[place + 1 :]
        history[name] = " ".join([*before, now[name], *later])
    return history


def _columns(history: Mapping[str, Any]) -> dict[str, list[str]] | None:
    """The columns as lists; None if they are not what this module writes."""
    columns = {name: str(history.get(name, "")).split() for name in COLUMNS}
    lengths = {len(column) for column in columns.values()}
    return columns if len(lengths) == 1 and 0 < lengths.pop() <= MAX_ENTRIES else None


def _interval(history: Mapping[str, Any]) -> int:
    interval = history.get("intervalSeconds")
    return interval if isinstance(interval, int) and interval > 0 else 0


def _halved(column: Sequence[str]) -> list[str]:
    """Of each pair the later entry, or the earlier one where that is unknown."""
    pairs = [column[i : i + 2] for i in range(0, len(column), 2)]
    return [next((entry for entry in reversed(pair) if entry != UNKNOWN), UNKNOWN) for pair in pairs]
