"""Pods that train are left alone, the status is true, and no process grows. Pure."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from statistics import median

from soak.perform import Hit
from soak.timeline import PodSeen, StatusSeen, Step, Usage, Violation, groups_of

# From the end of a fault to the end of a pod: Kubernetes removes the pods of lost nodes late.
EFFECT_SECONDS = 90.0
# The promise is 10 s; the rest is for a machine with a whole cluster on two cores.
STATUS_SECONDS = 10.0 + 20.0
BOUNDARY_SECONDS = 10.0  # from the decision on the next group to the last step of the one before
SETTLED_SECONDS = 60.0  # until a process holds what it needs
# Connections to as many peers and streams as there are workers, threads of a pool, caches.
MAY_GROW = {"descriptors": 40, "memory_files": 6, "threads": 12, "resident_mib": 64.0}
MEMORY_LIMIT_MIB = 512.0  # the chart's, of an operator
MOST_OF_LIMIT = 0.5
# More, for a replica that begins to lead: a connection of each of about twenty agents, or two.
LEADER_DESCRIPTORS = 40


def check_healthy_pods(
    pods: Sequence[PodSeen],
    hits: Sequence[Hit],
    trained: Mapping[str, set[str]],
    ended: Mapping[str, float],
) -> Iterator[Violation]:
    """No worker that has taken a step (`trained`, by job) ends without a fault that explains it."""
    for seen in pods:
        trains = seen.pod in trained.get(seen.job, ()) and seen.at < ended.get(seen.job, inf) - 1
        if trains and not any(_explains(hit, seen) for hit in hits):
            yield Violation("no healthy pod ends", seen.job, seen.at, seen.text)


def _explains(hit: Hit, seen: PodSeen) -> bool:
    if not _felt(hit, seen):
        return False
    if hit.pods or hit.node:
        return seen.pod in hit.pods or seen.node == hit.node
    return hit.kind.family == "size" and hit.touches(seen.job)


def check_operators(restarts: Sequence[PodSeen], hits: Sequence[Hit]) -> Iterator[Violation]:
    for seen in restarts:
        if not any(_restarts(hit, seen) for hit in hits):
            yield Violation("the operator keeps running", "", seen.at, seen.text)


def _restarts(hit: Hit, seen: PodSeen) -> bool:
    away = hit.kind.family == "control plane" and hit.kind.unsettles
    concerns = away or seen.pod in hit.pods or (hit.kind.loses and seen.node == hit.node)
    return concerns and _felt(hit, seen)


def _felt(hit: Hit, seen: PodSeen) -> bool:
    return hit.at - 1 <= seen.at <= hit.until + EFFECT_SECONDS


def check_status(
    job: str, seen: Sequence[StatusSeen], steps: Sequence[Step], hits: Sequence[Hit]
) -> Iterator[Violation]:
    times = [status.at for status in seen]
    for group in groups_of(steps):
        begin = group.first_at + STATUS_SECONDS
        # The status has the next size as soon as it is decided, a step boundary early.
        end = group.last_at - BOUNDARY_SECONDS
        shown = seen[max(0, bisect_right(times, begin) - 1) : bisect_right(times, end)]
        wrong = [status for status in shown if status.world != group.world]
        away = any(
            hit.kind.unsettles and hit.at <= group.last_at and hit.until + STATUS_SECONDS >= begin
            for hit in hits
        )
        if end > begin and wrong and not away:
            text = f"group {group.number} of {group.world} trains, the status says {wrong[0].world}"
            yield Violation(f"status true within {STATUS_SECONDS:.0f} s", job, begin, text)


def check_growth(usages: Sequence[Usage]) -> Iterator[Violation]:
    """After a process has settled, the median of its last third is not far above its first's."""
    for process, samples in _by_process(usages).items():
        settled = [sample for sample in samples if sample.at >= samples[0].at + SETTLED_SECONDS]
        third = len(settled) // 3
        if not third:
            continue
        for name, usual in MAY_GROW.items():
            leads = (samples[0].role, name) == ("operator", "descriptors")
            may = usual + LEADER_DESCRIPTORS if leads else usual
            early, late = (
                median(getattr(s, name) for s in part)
                for part in (settled[:third], settled[-third:])
            )
            if late > early + may:
                text = f"{samples[0].role} {process}: {name} went from {early:.0f} to {late:.0f}"
                yield Violation("nothing leaks", "", samples[-1].at, text)


def check_memory(usages: Sequence[Usage]) -> Iterator[Violation]:
    """No operator needs half of its memory limit: the rest is for larger clusters."""
    for process, samples in _by_process(usages).items():
        most = max(samples, key=lambda sample: sample.resident_mib)
        if most.role == "operator" and most.resident_mib >= MEMORY_LIMIT_MIB * MOST_OF_LIMIT:
            limit = f"{MEMORY_LIMIT_MIB:.0f} MiB"
            text = f"operator {process} held {most.resident_mib:.0f} MiB of {limit}"
            yield Violation("operators stay below half of their memory limit", "", most.at, text)


def _by_process(usages: Sequence[Usage]) -> dict[str, list[Usage]]:
    found = defaultdict(list)
    for usage in usages:
        found[usage.process].append(usage)
    return found
