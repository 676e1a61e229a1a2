"""Steps, samples, groups and parameters of a training. Pure: checks return broken promises."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import pairwise

from soak.jobs import Expected
from soak.perform import Hit
from soak.timeline import INDEX, Done, Group, Step, Violation, groups_of

EFFECT_SECONDS = 20.0  # after a fault's end: a grace period of 10 s, and the detection
# Between 64-bit parameters: far above what the order of sums changes, far below one sample.
CLOSE = 1e-6


def check_groups(expected: Expected, steps: Sequence[Step]) -> Iterator[Violation]:
    together: dict[tuple[int, int, str], set[str]] = defaultdict(set)
    for step in steps if expected.library else ():
        if index := INDEX.search(step.pod):
            together[step.group, step.number, index[1]].add(step.pod)
    for (group_number, number, _), pods in together.items():
        if len(pods) > 1:
            text = f"step {number} of group {group_number}: {sorted(pods)}"
            yield Violation("one worker of an index", expected.name, steps[0].at, text)
    for group in groups_of(steps):
        if not expected.minimum <= group.world / expected.processes <= expected.maximum:
            text = f"group {group.number} of {group.world} processes: {sorted(group.members)}"
            yield Violation(
                "groups within minReplicas and maxReplicas", expected.name, group.first_at, text
            )


def check_units(expected: Expected, steps: Sequence[Step]) -> Iterator[Violation]:
    """Every `unit` consecutive ranks are workers of one unit, in the order of their indices."""
    units: dict[tuple[int, int], set[int]] = defaultdict(set)
    for step in steps if expected.unit > 1 else ():
        rank = step.rank // expected.processes
        index = INDEX.search(step.pod)
        if index and (int(index[1]) - rank) % expected.unit == 0:
            units[step.group, rank // expected.unit].add(int(index[1]) // expected.unit)
        else:
            text = f"{step.pod} is rank {rank} of group {step.group}"
            yield Violation("units in order", expected.name, step.at, text)
            return
    for (group, place), found in units.items():
        if len(found) > 1:
            text = f"place {place} of group {group} has workers of units {found}"
            yield Violation("whole units", expected.name, steps[0].at, text)


def check_repeats(
    expected: Expected, steps: Sequence[Step], hits: Sequence[Hit], killed: Set[str] = frozenset()
) -> Iterator[Violation]:
    """No step is left out or repeated by a planned change; a loss with survivors repeats few.

    Only the survivors' steps count, which each worker records before it knows whether the group
    completes them: a lost worker may have been one step ahead of the messages that its peers got.

    A group that no worker survives needs a checkpoint, which a read-only folder does not take.
    Workers on a node that is cut off may train beside the next group; their steps from its first
    one on are lost, not repeated.

    Pods that are `killed` outlasted their grace period, so that the planned change was a loss.
    """
    done = 0
    before: Group | None = None
    for after in groups_of(steps):
        if after.first > done + 1:
            text = f"group {after.number} began with step {after.first} after step {done}"
            yield Violation("no step left out", expected.name, after.first_at, text)
        if before:
            told, near = _told_before(after, steps), hits_near(expected, before, after, hits)
            kept, allowed = _kept(expected, before, after, told, near, killed)
            repeated = min(kept, done) - after.first + 1
            if repeated > allowed:
                again = f"{repeated} steps again from step {after.first}; {allowed:.0f} may be"
                were = ", ".join(f"{pod} at {told[pod]}" for pod in sorted(before.members))
                members = f"{sorted(after.members)} are its members, before it {were}"
                text = f"group {after.number} did {again}; {members}"
                yield Violation("no step done twice", expected.name, after.first_at, text)
        done, before = max(done, after.last), after


def hits_near(expected: Expected, before: Group, after: Group, hits: Sequence[Hit]) -> list[Hit]:
    """The faults that may have caused the change from one group to the next."""
    return [
        hit
        for hit in hits
        if hit.touches(expected.name)
        and hit.at <= after.first_at
        and hit.until + EFFECT_SECONDS >= before.last_at
    ]


def _kept(
    expected: Expected,
    before: Group,
    after: Group,
    told: Mapping[str, int],
    near: Sequence[Hit],
    killed: Set[str],
) -> tuple[float, float]:
    """The last step before a group that is surely kept, and how many steps it may repeat."""
    if not expected.library:
        cut_off = any(hit.kind.isolates for hit in near)
        return max(told.values()) if cut_off else math.inf, expected.repeated
    together = before.members & after.members
    if before.members & killed or any(hit.kind.loses or hit.kind.unsettles for hit in near):
        # A pod that was hit has lost its memory.
        survivors = together.difference(*(hit.pods for hit in near))
        if not survivors or (expected.sharded and len(before.members - survivors) > 1):
            return 0, 0
        return max(told[pod] for pod in survivors), expected.repeated
    refused = any(unsaved(expected, hit) and hit.until >= before.last_at for hit in near)
    return (math.inf, 0) if together or not refused else (0, 0)


def unsaved(expected: Expected, hit: Hit) -> bool:
    """Whether the job can save nothing while a fault lasts; a bucket is found by DNS."""
    return hit.touches(expected.name) and (
        hit.kind.family == "storage" or (expected.bucket and hit.kind.name == "stop-dns")
    )


def _told_before(group: Group, steps: Sequence[Step]) -> dict[str, int]:
    """The last step that each pod had begun in earlier groups when this group began."""
    last: dict[str, int] = defaultdict(int)
    for step in steps:
        if step.group < group.number and step.at <= group.first_at:
            last[step.pod] = max(last[step.pod], step.number)
    return last


def check_samples(expected: Expected, steps: Sequence[Step]) -> Iterator[Violation]:
    """Each sample occurs once in an epoch, counting the last group that did each step."""
    newest: dict[int, int] = {}
    for step in steps:
        newest[step.number] = max(newest.get(step.number, 0), step.group)
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    for step in steps:
        if step.group == newest[step.number]:
            seen[step.epoch].update(step.samples)
    for epoch in range(expected.epochs):
        missing = [sample for sample in range(expected.samples) if not seen[epoch][sample]]
        twice = [sample for sample, count in seen[epoch].items() if count > 1]
        if missing or twice:
            never, more = f"{len(missing)} never (as {missing[:5]})", f"{len(twice)} more than once"
            text = f"epoch {epoch}: {never}, {more} (as {twice[:5]})"
            yield Violation("each sample once an epoch", expected.name, 0.0, text)


def check_end(
    expected: Expected, steps: Sequence[Step], done: Sequence[Done], undisturbed: Sequence[float]
) -> Iterator[Violation]:
    last = max((step.number for step in steps), default=0)
    if last != expected.total or not done:
        text = f"the last step was {last} of {expected.total}"
        yield Violation("every job trains to its end", expected.name, 0.0, text)
        return
    for end in done:
        apart = max(
            (abs(a - b) for a, b in zip(end.parameters, undisturbed, strict=True)), default=0.0
        )
        if apart > CLOSE:
            text = f"{end.pod} ended with parameters that differ by {apart:.2g}"
            yield Violation("parameters of an undisturbed run", expected.name, end.at, text)


def longest_pause(steps: Sequence[Step], since: float, until: float) -> float:
    """The longest time between two steps that overlaps an interval, in seconds."""
    times = sorted({step.at for step in steps if step.rank == 0})
    return max((b - a for a, b in pairwise(times) if a <= until and b >= since), default=0.0)
