"""Whether `status.goodput` agrees with what was seen from outside. Pure."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from elastic_pytorch_client.reading.goodput import Goodput

from soak.checks.training import EFFECT_SECONDS, longest_pause
from soak.jobs import Expected
from soak.perform import Hit
from soak.timeline import StatusSeen, Step, Violation, groups_of, kept_seconds

APART = 0.02  # of the job's time, by which the shares may differ besides `unresolved_seconds`
# Of a shorter job, the operator's delay in hearing of a step would be a larger share.
LEAST_SECONDS = 900.0
WHOLE_SECONDS = 1.0
ENDED = ("Complete", "Failed")
SUSPENDED = ("Suspending", "Suspended")


def check_goodput(
    expected: Expected,
    told: Goodput,
    steps: Sequence[Step],
    statuses: Sequence[StatusSeen],
    hits: Sequence[Hit],
) -> Iterator[Violation]:
    whole, counted = whole_seconds(statuses), sum(told.seconds.values())
    if not (expected.library and steps and counted) or whole < LEAST_SECONDS:
        return
    at, seen = steps[-1].at, kept_seconds(groups_of(steps))
    if counted > whole * (1 + APART):
        text = f"{counted} s are told of {whole:.1f} s"
        yield Violation("no more time is told than there was", expected.name, at, text)
    share = told.seconds.get("Training", 0) / counted
    unresolved = unresolved_seconds(steps, hits)
    if abs(share - seen / whole) > APART + unresolved / whole:
        text = f"{share:.1%} of {counted} s is told, {seen / whole:.1%} of {whole:.1f} s was seen"
        text += f"; {unresolved:.1f} s are not resolved"
        yield Violation("goodput is what was seen", expected.name, at, text)


def whole_seconds(statuses: Sequence[StatusSeen]) -> float:
    """The time from creation to end in which the job was not suspended; 0: it has not ended."""
    ended = next((number for number, status in enumerate(statuses) if status.state in ENDED), 0)
    return sum(
        later.at - earlier.at
        for earlier, later in pairwise(statuses[: ended + 1])
        if earlier.world or earlier.state not in SUSPENDED
    )


def unresolved_seconds(steps: Sequence[Step], hits: Sequence[Hit]) -> float:
    """The time that the observation cannot resolve.

    Of each group, one step is unknown: when the first step began, and how far the interrupted
    one came. While the operator or the API server is away, nothing measures a pause, and the next
    leader counts it as the state before. The status has whole seconds, and each leader adds to it.
    """
    groups = groups_of(steps)
    numbers = sum(group.last - group.first for group in groups)
    pace = sum(group.last_at - group.first_at for group in groups) / max(1, numbers)
    away = [
        longest_pause(steps, hit.at, hit.until + EFFECT_SECONDS)
        for hit in hits
        if hit.kind.unsettles
    ]
    return pace * len(groups) + sum(away) + WHOLE_SECONDS * (1 + len(away))
