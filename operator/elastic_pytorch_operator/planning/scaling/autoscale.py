"""`resizePolicy.autoscale`: how many workers are worth their cost.

The rule tries a neighbouring size and compares it with the present one. Whichever is the larger of the two is kept if the workers that it
has more are efficient. Where the comparison is not sure, the job keeps the size that it had before the try. So a worker is given back
only if it surely does not help, and one that was given back returns only if it surely helps.

A size is tried when it has not been measured for the longest time. After each change the rule rests for twenty times as long as a
change stops the training: the changes cost 5 % of the time at most. If a try changes nothing, the next rest is twice as long. Nothing is
decided while the group is not whole: a loss is a reason for a replacement, not for another size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from elastic_pytorch_operator.planning.scaling.comparison import Comparison, compare
from elastic_pytorch_operator.planning.scaling.throughput import Measurement, Throughput

STEP_DIVISOR = 4  # a try changes a group by a quarter: one worker of many is too little to be measured
CHANGE_SHARE = 0.05  # of the time that changes may cost
MIN_REST_SECONDS = 600.0
MAX_DOUBLINGS = 4
DECIDING_MARGIN = 0.5  # of the efficiency: what is less sure decides nothing
ROOM_SECONDS = 600.0  # for which a try waits for the workers that it asks for


@dataclass(frozen=True, slots=True)
class Autoscale:
    """What has been decided about the size of a job.

    Attributes:
        replicas: how many workers are kept; None: all that `spec.replicas` asks for.
        trying: how many workers train for now, to be compared with that; None: nothing is tried.
        next_at: when the next try may begin, monotonic seconds.
        began_at: when the present try began.
        reached: the group has had the size that is tried.
        unchanged: how many tries in a row have changed nothing.
        change_seconds: for how long the last planned change has stopped the training.
    """

    replicas: int | None = None
    trying: int | None = None
    next_at: float = 0.0
    began_at: float = 0.0
    reached: bool = False
    unchanged: int = 0
    change_seconds: float = 0.0

    def limit(self, wanted: int) -> int:
        """How many workers there should be now, of those that are wanted."""
        kept = min(wanted, self.replicas or wanted)
        return min(wanted, self.trying or kept)


@dataclass(frozen=True, slots=True)
class Group:
    """What the rule looks at.

    Attributes:
        sizes: those that the job may have, rising, up to the one that `spec.replicas` asks for.
        size: the present one.
        measurement: of it.
        known: what was measured of each size, the present one included.
        room_seconds: for which a try waits for its workers.
    """

    sizes: Sequence[int]
    size: int
    measurement: Measurement
    known: Mapping[int, Throughput]
    room_seconds: float = ROOM_SECONDS


def decide(state: Autoscale, group: Group, min_efficiency: float, now: float) -> tuple[Autoscale, str | None]:
    """Decides on the size.

    Args:
        state: what was decided before.
        group: what is known.
        min_efficiency: which the workers beyond a smaller size must have.
        now: monotonic seconds.

    Returns:
        The decision, and a sentence about it; None: it has not changed.
    """
    top = group.sizes[-1]
    if state.replicas is not None and state.replicas not in group.sizes[:-1]:
        smaller = max((size for size in group.sizes if size <= state.replicas), default=top)
        state = replace(state, replicas=None if smaller == top else smaller, trying=None, next_at=now)
    if state.trying is not None and state.trying not in group.sizes:
        state = replace(state, trying=None)
    home = state.replicas or top
    if state.trying is None:
        if group.size != home or group.measurement.throughput is None or now < state.next_at:
            return state, None
        chosen = _next_try(home, group)
        if chosen is None:
            return state, None
        more = "more would add" if chosen > home else "the others add"
        tried = replace(state, trying=chosen, began_at=now, reached=False)
        return tried, f"Tries {chosen} instead of {home} workers, to measure what {more}"
    if group.size != state.trying:
        if state.reached or state.trying < home or now < state.began_at + group.room_seconds:
            return state, None
        return _end_try(state, home, now), f"Keeps {home} workers: there was no room for {state.trying}"
    state = replace(state, reached=True)
    current = group.measurement.throughput
    if current is None or not group.measurement.due:
        return state, None
    comparison = compare(current, group.known[home]) if home in group.known else None
    if comparison is None:
        return _end_try(state, home, now), f"Keeps {home} workers: the measurements of {state.trying} lie too far apart in time"
    low, high = comparison.efficiency - comparison.margin, comparison.efficiency + comparison.margin
    if low < min_efficiency <= high or comparison.margin > DECIDING_MARGIN:
        if not group.measurement.full:
            return state, None
        why = f"give or take {comparison.margin:.2f}, which does not tell whether minEfficiencyPercent {100 * min_efficiency:g} is met"
        return _end_try(state, home, now), f"Keeps {home} workers: {comparison}, {why}"
    kept = comparison.more if low >= min_efficiency else comparison.fewer
    return _keep(state, kept, top, home, now), _describe(kept, home, comparison, min_efficiency)


def step_down(size: int, sizes: Sequence[int]) -> int | None:
    """The smaller size to try, None if there is none."""
    below = [other for other in sizes if other < size]
    aim = size - max(1, size // STEP_DIVISOR)
    return max((other for other in below if other <= aim), default=below[0] if below else None)


def step_up(size: int, sizes: Sequence[int]) -> int | None:
    """The larger size to try, None if there is none."""
    above = [other for other in sizes if other > size]
    aim = size + max(1, size // STEP_DIVISOR)
    return min((other for other in above if other >= aim), default=above[-1] if above else None)


def _next_try(home: int, group: Group) -> int | None:
    """The neighbouring size that was not measured for the longest time; the smaller one if neither was."""
    neighbours = [size for size in (step_down(home, group.sizes), step_up(home, group.sizes)) if size is not None]
    return min(neighbours, key=lambda size: group.known[size].at if size in group.known else 0.0, default=None)


def _keep(state: Autoscale, kept: int, top: int, home: int, now: float) -> Autoscale:
    if kept == home:
        return _end_try(state, home, now)
    rest = state.change_seconds / CHANGE_SHARE
    return replace(state, replicas=None if kept == top else kept, trying=None, next_at=now + rest, unchanged=0)


def _end_try(state: Autoscale, home: int, now: float) -> Autoscale:
    """Returns to the size before a try, which has cost two changes."""
    doubled = MIN_REST_SECONDS * 2 ** min(state.unchanged, MAX_DOUBLINGS)
    rest = max(doubled, 2 * state.change_seconds / CHANGE_SHARE)
    return replace(state, trying=None, next_at=now + rest, unchanged=state.unchanged + 1)


def _describe(kept: int, home: int, comparison: Comparison, min_efficiency: float) -> str:
    what = f"Gives back {home - kept} of {home} workers" if kept < home else f"Keeps {kept} workers"
    return f"{what}: {comparison}; resizePolicy.autoscale.minEfficiencyPercent is {100 * min_efficiency:g}"
