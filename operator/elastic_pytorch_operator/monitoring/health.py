"""The checks behind the liveness probe: is the operator to be restarted? Pure: what was measured in, complaints out.

An API server that does not answer is no fault of the operator: a silent watch counts only while the API server answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

WATCH_STALE_SECONDS = 90.0  # kopf opens a watch again after 70 s without even a bookmark
STUCK_SECONDS = 300.0  # a reconcile whose every request fails by time-out is shorter


@dataclass(frozen=True, slots=True)
class HealthSample:
    now: float
    # By kind, since when a watch has reported nothing, although something has happened.
    silent_since: Mapping[str, float] = field(default_factory=dict)
    answering_since: float | None = None  # None: it did not answer the last request
    longest_reconcile_seconds: float = 0.0


def failed_checks(sample: HealthSample) -> tuple[str, ...]:
    found = []
    if sample.answering_since is not None:
        for kind, since in sorted(sample.silent_since.items()):
            seconds = sample.now - max(since, sample.answering_since)
            if seconds > WATCH_STALE_SECONDS:
                found.append(f"the watch of {kind} has been silent about a change for {seconds:.0f} s")
    if sample.longest_reconcile_seconds > STUCK_SECONDS:
        found.append(f"a reconcile has been going on for {sample.longest_reconcile_seconds:.0f} s")
    return tuple(found)
