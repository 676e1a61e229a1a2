"""What a job's time was spent on, as its status tells it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

APART = "Suspended"
# What the time was lost to, in words that follow a percentage.
LOST_TO = {
    "Repeating": "repeating steps",
    "Starting": "starting",
    "Preparing": "preparing",
    "WaitingForNodes": "waiting for nodes",
    "WaitingForQuota": "waiting for quota",
    "Recovering": "recovering",
    "Resizing": "resizing",
}
LEAST_SHARE = 0.001  # of the time, that is worth a word


@dataclass(frozen=True, slots=True)
class Goodput:
    """`status.goodput`.

    Attributes:
        seconds: the seconds of each activity, without the time that the job was suspended.
        process_seconds: the seconds of each activity, of all processes together, also of spares.
    """

    seconds: Mapping[str, int] = field(default_factory=dict)
    process_seconds: Mapping[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """The share of kept steps in the time, from 0 to 1; None: it is not known.

        Of a script that reports no steps, it is the share of the time that its workers ran.
        """
        whole = sum(self.seconds.values())
        return (
            (self.seconds.get("Training") or self.seconds.get("StepsUnreported") or 0) / whole
            if whole
            else None
        )

    def __str__(self) -> str:
        """The ratio in per cent; empty if it is not known."""
        return "" if self.ratio is None else f"{100 * self.ratio:.1f}%"

    @property
    def lost(self) -> str:
        """What the rest of the time was lost to, most of it first, as `1.2% recovering, 0.4% resizing`; empty: nothing worth a word."""
        whole = sum(self.seconds.values())
        shares = (
            {
                activity: seconds / whole
                for activity, seconds in self.seconds.items()
                if activity in LOST_TO
            }
            if whole
            else {}
        )
        told = sorted(
            (activity for activity in shares if shares[activity] >= LEAST_SHARE),
            key=lambda each: -shares[each],
        )
        return ", ".join(f"{100 * shares[activity]:.1f}% {LOST_TO[activity]}" for activity in told)


def view_goodput(status: Mapping[str, Any]) -> Goodput:
    found = status.get("goodput") or {}
    seconds, process_seconds = (
        {
            activity: int(spent)
            for activity, spent in (found.get(unit) or {}).items()
            if activity != APART
        }
        for unit in ("seconds", "processSeconds")
    )
    return Goodput(seconds, process_seconds)
