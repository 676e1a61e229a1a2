"""Failures of workers in `prepare` disturb no other worker, and spares replace. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from soak.checks.training import EFFECT_SECONDS, hits_near
from soak.jobs import Expected
from soak.perform import Hit
from soak.timeline import SetUpFailure, StatusSeen, Step, Violation, groups_of

MOMENT_SECONDS = 5.0  # from a failure to a change of the group that it would cause
COUNT_SECONDS = 10.0  # from a failure to the status that would count it
SHOWN_SECONDS = 2.0  # the age of a status that is certainly true, at a loss


def check_set_up_failures(
    expected: Expected,
    steps: Sequence[Step],
    failures: Sequence[SetUpFailure],
    statuses: Sequence[StatusSeen],
    hits: Sequence[Hit],
) -> Iterator[Violation]:
    """A group may grow at any time, as other workers become ready."""
    for before, after in pairwise(groups_of(steps)):
        near = [f for f in failures if before.last_at - MOMENT_SECONDS <= f.at <= after.first_at]
        grows = before.members < after.members
        if near and not grows and not hits_near(expected, before, after, hits):
            text = f"group {after.number} followed as {near[-1].pod} failed ({near[-1].how})"
            yield Violation("a failed set-up changes no group", expected.name, after.first_at, text)
    for earlier, later in pairwise(statuses):
        near = [f for f in failures if later.at - COUNT_SECONDS <= f.at <= later.at]
        excused = any(
            h.touches(expected.name) and h.at <= later.at <= h.until + EFFECT_SECONDS for h in hits
        )
        if near and later.total_failures > earlier.total_failures and not excused:
            text = f"{later.total_failures} since {near[-1].pod} has failed in its set-up"
            yield Violation("a failed set-up does not count", expected.name, later.at, text)


def check_spares(
    expected: Expected, steps: Sequence[Step], statuses: Sequence[StatusSeen], hits: Sequence[Hit]
) -> Iterator[Violation]:
    times = [status.at for status in statuses]
    for before, after in pairwise(groups_of(steps)) if expected.spares else ():
        near = hits_near(expected, before, after, hits)
        if len(near) != 1 or near[0].kind.family != "worker":
            continue
        shown = bisect_right(times, near[0].at - SHOWN_SECONDS)
        if not shown or shown != bisect_right(times, near[0].at):
            continue
        spares = statuses[shown - 1].spares - near[0].pods
        if spares and not spares & after.members:
            text = f"group {after.number} of {sorted(after.members)} does without {sorted(spares)}"
            yield Violation(
                "a spare joins in the round of the loss", expected.name, after.first_at, text
            )
