"""Workers on nodes whose end is announced: each gets a replacement first, and all leave in one round when the replacements are ready.

If those do not become ready in time, the workers leave before the node ends: the group stops them at a step boundary, which no end without
an eviction would. An announcement that is withdrawn is forgotten: then the replacement is one worker too many, and goes.

A node that reports a fault is left in the same way, but no earlier than the replacements are ready: those that train there still do.
The same holds for a worker whose own device is unhealthy, as its kubelet says.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from elastic_pytorch_operator.api.times import earliest, seconds_between
from elastic_pytorch_operator.model.announced_ends import NOTICE_SECONDS, AnnouncedEnd, Certainty
from elastic_pytorch_operator.model.observed import NodeView, Observed
from elastic_pytorch_operator.planning.target import Target
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.sizes import in_whole_units, largest_allowed

REPLACE_AHEAD_SECONDS = 600.0  # of an end at a known time: a new node and its images take minutes
TOGETHER_SECONDS = 30.0  # workers that would have to leave so soon after the first one leave with it, in one round
PAST_SECONDS = 3600.0  # after a known time it is over, whatever the label says


@dataclass(frozen=True, slots=True)
class Evacuation:
    """What is to become of the workers on nodes that end.

    Attributes:
        ending: by node of the job's pods: when its workers have to have left, monotonic seconds.
        announced: those of them that the plan before did not know.
        staying: members that stay until their replacements are ready, and why they are to leave, to follow their names in a sentence.
        leaving: the same of workers that leave now.
        recheck_at: when to decide again if nothing happens before; None: only on an event.
    """

    ending: Mapping[str, float] = field(default_factory=dict)
    announced: Sequence[str] = ()
    staying: Mapping[str, str] = field(default_factory=dict)
    leaving: Mapping[str, str] = field(default_factory=dict)
    recheck_at: float | None = None

    @property
    def workers(self) -> Collection[str]:
        """All that are to be replaced."""
        return {*self.staying, *self.leaving}

    def leave_by(self, observed: Observed) -> float:
        """When the first of those that leave now has to have left, monotonic seconds; infinity if none leaves."""
        return min((self.ending.get(observed.pods_by_name[worker].node, math.inf) for worker in self.leaving), default=math.inf)


NO_EVACUATION = Evacuation()


def plan_evacuation(
    job: Job, target: Target, observed: Observed, candidates: Collection[Candidate], known: Mapping[str, float]
) -> Evacuation:
    """Decides which workers leave their nodes.

    Args:
        job: says how long its workers take to stop, and which sizes a group may have.
        target: how many workers it is to have.
        observed: the job's pods, their nodes, and its round.
        candidates: the workers, assessed.
        known: `Evacuation.ending` of the plan before.
    """
    ending, rechecks = _ending_nodes(job, observed, known)
    if not ending and not any(pod.unhealthy for pod in observed.pods):
        return Evacuation(recheck_at=earliest(*rechecks))
    announced = sorted(ending.keys() - known.keys())
    checkpoint_wait_seconds = min(job.checkpoint_wait_seconds, NOTICE_SECONDS / 2)
    why: dict[str, str] = {}
    leaves_at: dict[str, float] = {}
    stay: set[int] = set()
    for candidate in candidates:
        pod = observed.pods_by_name.get(candidate.worker)
        if pod is None or candidate.liveness not in (Liveness.READY, Liveness.STARTING):
            continue
        if pod.node in ending:
            why[pod.name] = f"leaves node {pod.node}, which {announcement(observed.nodes[pod.node])}"
            leaves_at[pod.name] = ending[pod.node] - checkpoint_wait_seconds
        elif pod.unhealthy:
            why[pod.name] = f"leaves node {pod.node}, where a device of its own is unhealthy ({pod.unhealthy})"
            leaves_at[pod.name] = math.inf
        elif candidate.liveness is Liveness.READY:
            stay.add(candidate.index)
    size = len(observed.ranks)
    whole = largest_allowed(len(in_whole_units(stay, job.unit_replicas)), job.allowed) >= min(size, target.size)
    members = sorted(
        (worker for worker in why if worker in observed.ranks), key=lambda worker: observed.pods_by_name[worker].index
    )
    # Those that are no longer wanted need no replacement.
    waiting = members[: max(0, len(members) - max(0, size - target.size))]
    first_leaves_at = earliest(*(leaves_at[worker] for worker in waiting))
    if first_leaves_at is not None and observed.now >= first_leaves_at:
        waiting = [worker for worker in waiting if leaves_at[worker] > observed.now + TOGETHER_SECONDS]
        first_leaves_at = earliest(*(leaves_at[worker] for worker in waiting))
    staying = {} if whole else {worker: why.pop(worker) for worker in waiting}
    if staying and first_leaves_at is not None and first_leaves_at < math.inf:
        rechecks.append(first_leaves_at)
    return Evacuation(ending, announced, staying, why, earliest(*rechecks))


def announcement(node: NodeView) -> str:
    """What a node announces, to follow its name in a sentence."""
    return str(node.end or "")


def seconds_left(end: AnnouncedEnd, time: str) -> float | None:
    """How long a node is there for certain; None: it does not end soon, as far as is known."""
    if end.certainty is not Certainty.DATED:
        return end.notice_seconds if end.certainty is Certainty.SURE else None
    left = seconds_between(time, end.at)
    soon = left <= REPLACE_AHEAD_SECONDS and seconds_between(end.at, time) <= PAST_SECONDS
    return left if soon else None


def _ending_nodes(job: Job, observed: Observed, known: Mapping[str, float]) -> tuple[dict[str, float], list[float]]:
    """The job's nodes that end, and when its workers have to have left each; and when others will have to be looked at again."""
    ending, rechecks = {}, []
    for name in {pod.node for pod in observed.pods if not pod.ended}:
        node = observed.nodes.get(name)
        if node is None or node.end is None:
            continue
        left = seconds_left(node.end, observed.time)
        if left is None:
            if node.end.certainty is Certainty.DATED:
                rechecks.append(observed.now + seconds_between(observed.time, node.end.at) - REPLACE_AHEAD_SECONDS)
            continue
        leave_by = observed.now + max(left - job.grace_seconds, left / 2)
        ending[name] = min(known.get(name, math.inf), leave_by)
    return ending, [at for at in rechecks if at > observed.now]
