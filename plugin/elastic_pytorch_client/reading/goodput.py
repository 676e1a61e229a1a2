"""What a job's time was spent on, by its status."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

APART = "Suspended"
# In words that follow a percentage.
LOST_TO = {
    "Repeating": "repeating steps",
    "Starting": "starting",
    "Preparing": "preparing",
    "WaitingForNodes": "waiting for nodes",
    "WaitingForQuota": "waiting for quota",
    "Recovering": "recovering",
    "Resizing": "resizing",
}
LEAST_SHARE = 0.001  # of the time, which is worth a word


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
        kept = self.seconds.get("Training") or self.seconds.get("StepsUnreported") or 0
        return kept / whole if whole else None

    def __str__(self) -> str:
        return "" if self.ratio is None else f"{100 * self.ratio:.1f}%"

    @property
    def lost(self) -> str:
        """The rest of the time, most first, as `1.2% recovering, 0.4% resizing`; may be empty."""
        whole = sum(self.seconds.values())
        shares = {name: whole and n / whole for name, n in self.seconds.items() if name in LOST_TO}
        shown = [activity for activity in shares if shares[activity] >= LEAST_SHARE]
        shown.sort(key=lambda activity: -shares[activity])
        return ", ".join(f"{100 * shares[activity]:.1f}% {LOST_TO[activity]}" for activity in shown)


def view_goodput(status: Mapping[str, Any]) -> Goodput:
    found = status.get("goodput") or {}
    seconds, process_seconds = (
        {name: int(spent) for name, spent in (found.get(unit) or {}).items() if name != APART}
        for unit in ("seconds", "processSeconds")
    )
    return Goodput(seconds, process_seconds)
