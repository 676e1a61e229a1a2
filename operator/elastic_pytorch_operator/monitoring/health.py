"""What is wrong with the operator: is it to be restarted? Pure: what was measured in, complaints out.

An API server that is away is not the operator's illness: only while it answers does a silent watch mean anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

DEAF_SECONDS = 90.0  # kopf opens a watch anew after 70 s without even a bookmark
STUCK_SECONDS = 300.0  # a reconcile whose every request fails by time-out is shorter


@dataclass(frozen=True, slots=True)
class Vitals:
    """What was measured.

    Attributes:
        now: monotonic seconds.
        silent_since: by kind, since when a watch should have reported something that has happened.
        answering_since: since when the API server has answered every request; None: it did not answer the last one.
        longest_reconcile_seconds: how long the oldest reconcile has been going on.
    """

    now: float
    silent_since: Mapping[str, float] = field(default_factory=dict)
    answering_since: float | None = None
    longest_reconcile_seconds: float = 0.0


def find_ailments(vitals: Vitals) -> tuple[str, ...]:
    """What is wrong, for people; nothing: the operator is well."""
    found = []
    if vitals.answering_since is not None:
        for kind, since in sorted(vitals.silent_since.items()):
            seconds = vitals.now - max(since, vitals.answering_since)
            if seconds > DEAF_SECONDS:
                found.append(f"the watch of {kind} has been silent about a change for {seconds:.0f} s")
    if vitals.longest_reconcile_seconds > STUCK_SECONDS:
        found.append(f"a reconcile has been going on for {vitals.longest_reconcile_seconds:.0f} s")
    return tuple(found)
