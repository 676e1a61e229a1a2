"""The checks behind the liveness probe, by which the operator is restarted. Pure.

An API server that does not answer is no fault of the operator: a silent watch counts only while the
API server answers.
"""

from collections.abc import Mapping

WATCH_STALE_SECONDS = 90.0  # kopf opens a watch again after 70 s without even a bookmark
STUCK_SECONDS = 300.0  # a reconcile whose every request times out is shorter


def failed_checks(
    now: float,
    silent_since: Mapping[str, float],
    answering_since: float | None,
    longest_reconcile_seconds: float = 0.0,
) -> tuple[str, ...]:
    """What is wrong, for people; `silent_since`: by kind, since when a watch has missed changes."""
    found = []
    if answering_since is not None:
        for kind, since in sorted(silent_since.items()):
            seconds = now - max(since, answering_since)
            if seconds > WATCH_STALE_SECONDS:
                found.append(
                    f"the watch of {kind} has been silent about a change for {seconds:.0f} s"
                )
    if longest_reconcile_seconds > STUCK_SECONDS:
        found.append(f"a reconcile has been going on for {longest_reconcile_seconds:.0f} s")
    return tuple(found)
