"""Workers leave nodes with an announced end in one round, once their replacements are ready.

If these are late, the workers leave at a step boundary before the node ends. A node with a fault,
or an unhealthy device of a worker's own, is left only when the replacements are ready. Where the
group has stopped, its workers first pass their state on in the next one.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.announced_ends import NOTICE_SECONDS
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.nodes.objections import (
    ENDS,
    ENDS_LATER,
    Objections,
    nodes_of,
)
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.sizes import in_whole_units, largest_allowed

TOGETHER_SECONDS = 30.0  # workers that must leave this soon after the first leave with it


@dataclass(frozen=True, slots=True)
class Evacuation:
    # Why workers leave, to follow their names: once their replacements are ready, or now.
    staying: Mapping[str, str] = field(default_factory=dict)
    leaving: Mapping[str, str] = field(default_factory=dict)
    leave_by: float = math.inf  # the first of `leaving`
    recheck_at: float | None = None

    def explain(self) -> str:
        return "; ".join(
            f"{worker} {why}, as soon as its replacement is ready"
            for worker, why in self.staying.items()
        )


def plan_evacuation(
    job: Job,
    target: Target,
    observed: Observed,
    candidates: Collection[Candidate],
    objections: Objections,
) -> Evacuation:
    ending = nodes_of(objections, ENDS)
    rechecks = [each.until for each in objections if each.cause is ENDS_LATER]
    if not ending and not any(pod.unhealthy for pod in observed.pods):
        return Evacuation(recheck_at=earliest(*rechecks))
    checkpoint_wait_seconds = min(job.checkpoint_wait_seconds, NOTICE_SECONDS / 2)
    why: dict[str, str] = {}
    leave_by: dict[str, float] = {}
    stay: set[int] = set()
    for candidate in candidates:
        pod = observed.pods_by_name.get(candidate.worker)
        if pod is None or not candidate.alive:
            continue
        if pod.node in ending:
            why[pod.name] = f"leaves node {pod.node}, which {observed.nodes[pod.node].end}"
            leave_by[pod.name] = ending[pod.node].until
        elif pod.unhealthy:
            device = f"a device of its own is unhealthy ({pod.unhealthy})"
            why[pod.name] = f"leaves node {pod.node}, where {device}"
            leave_by[pod.name] = math.inf
        elif candidate.ready:
            stay.add(candidate.index)
    size = max(observed.group_size, len(observed.trained))
    left = largest_allowed(len(in_whole_units(stay, job.unit_replicas)), job.allowed)
    whole = observed.group_size > 0 and left >= min(size, target.size)
    members = sorted(why.keys() & observed.trained, key=lambda w: observed.pods_by_name[w].index)
    # Workers that are no longer wanted need no replacement.
    waiting = members[: max(0, len(members) - max(0, size - target.size))]

    def first(workers: Iterable[str]) -> float:
        return min((leave_by[worker] for worker in workers), default=math.inf)

    first_leave_by = first(waiting)
    if observed.now >= first_leave_by - checkpoint_wait_seconds:
        together_until = observed.now + checkpoint_wait_seconds + TOGETHER_SECONDS
        waiting = [worker for worker in waiting if leave_by[worker] > together_until]
        first_leave_by = first(waiting)
    staying = {} if whole else {worker: why.pop(worker) for worker in waiting}
    if staying and first_leave_by < math.inf:
        rechecks.append(first_leave_by - checkpoint_wait_seconds)
    return Evacuation(staying, why, first(why), earliest(*rechecks))
