"""The table of what speaks against a node: since when, until when, and what follows for pods.

Kubernetes needs 40 to 50 s to see that a node has died. Until then its scheduler prefers the dead
node, as the fewest pods run there. Only the leader to which an agent reports a failed device knows
of it.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from elastic_pytorch_operator.api.times import seconds_between
from elastic_pytorch_operator.model.announced_ends import AnnouncedEnd, Certainty
from elastic_pytorch_operator.model.failure import has_device_fault
from elastic_pytorch_operator.model.observed import AgentState, Observed, PodView
from elastic_pytorch_operator.planning.failures.start_backoff import NO_NODE, FailedStarts
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from elastic_pytorch_operator.spec.job import Job

FAILED_STARTS_TO_AVOID = 2  # of pods of one job on a node
REPLACE_AHEAD_SECONDS = 600.0  # of an announced end: a new node and its images take minutes
PAST_SECONDS = 3600.0  # an announced end is over by then, whatever the label says


class Weight(IntEnum):
    """Of equal workers, those on nodes of a greater weight go first."""

    ANY = 0  # new pods go there as to any other node
    LAST = 1  # they go there only if no other node takes them
    DOUBTFUL = 2  # they keep away while another node has room; then as LAST
    NEVER = 3  # they keep away even if they have to wait


class Cause(NamedTuple):
    known: str  # what is known of the node
    since: str  # what the seconds count from
    ends: str  # what ends it before
    at_most_seconds: float  # inf: only what `ends` says ends it
    weight: Weight  # for new pods
    workers: str = "stay"  # what follows for those there


SUSPECTED = Cause(
    "a worker there is lost, but the node is reported as ready",
    "the loss",
    "an agent of the job reports from there, the kubelet reports the end of its pods, "
    "or the node is not ready",
    90.0,  # by then the cluster has found out by itself
    Weight.DOUBTFUL,
)
STARTS_FAILED = Cause(
    "two pods of the job have failed to start there",
    "the newer failure",
    "",
    600.0,
    Weight.DOUBTFUL,
)
DEVICE_FAILED = Cause(
    "a device there has failed a worker, by its own last words",
    "the failure",
    "",
    1800.0,  # a repair takes minutes to hours
    Weight.DOUBTFUL,
    "the one that failed is replaced",
)
DEVICE_UNHEALTHY = Cause(
    "a device of a pod there is unhealthy, as its kubelet says",
    "",
    "the device is well, or the pod has ended",
    math.inf,
    Weight.DOUBTFUL,
    "the pod's leaves when others can take its place",
)
WITHDRAWN = "that is withdrawn"
MAY_END = Cause("it announces a soft end, or a soft fault", "", WITHDRAWN, math.inf, Weight.LAST)
ENDS_LATER = Cause(
    "it announces an end in more than ten minutes", "", "ten minutes are left", math.inf, Weight.ANY
)
ENDS = Cause(
    "it announces a sure end, or a sure fault",
    "",
    f"{WITHDRAWN}, or its time is over by an hour",
    math.inf,
    Weight.NEVER,
    "leave when others can take their places, and in time before an end",
)
TABLE = (SUSPECTED, STARTS_FAILED, DEVICE_FAILED, DEVICE_UNHEALTHY, MAY_END, ENDS_LATER, ENDS)


class Objection(NamedTuple):
    node: str
    cause: Cause
    since: float
    until: float  # it is over or to be read again; of ENDS: the workers have to have left
    worker: str = ""  # whose device it is


Objections = tuple[Objection, ...]


def find_objections(
    job: Job,
    observed: Observed,
    candidates: Iterable[Candidate],
    starts: FailedStarts,
    known: Objections,
) -> Objections:
    gone = {candidate.worker for candidate in candidates if candidate.gone}
    return (
        *_suspicions(observed, gone, known),
        *_failed_starts(observed, starts),
        *_devices(observed, known),
        *_ends(job, observed, known),
    )


def nodes_of(objections: Objections, cause: Cause) -> dict[str, Objection]:
    return {each.node: each for each in objections if each.cause is cause}


def doubtful_nodes(objections: Objections) -> set[str]:
    return {each.node for each in objections if each.cause.weight is Weight.DOUBTFUL}


def displaced_workers(objections: Objections, observed: Observed) -> set[str]:
    """Workers that a device has failed, but no members: the failure of their round comes first."""
    failed = {each.worker for each in objections if each.cause is DEVICE_FAILED}
    return failed - observed.ranks.keys()


def failed_again(objections: Objections) -> set[str]:
    """Workers that a device has failed where one had failed another worker before."""
    failed = [each for each in objections if each.cause is DEVICE_FAILED]
    first = {each.node: each.since for each in sorted(failed, key=lambda each: -each.since)}
    return {each.worker for each in failed if first[each.node] < each.since}


def weigh_end(end: AnnouncedEnd | None, time: str) -> Weight:
    cause, _ = _read_end(end, time)
    return cause.weight if cause else Weight.ANY


def _read_end(end: AnnouncedEnd | None, time: str) -> tuple[Cause | None, float]:
    """The announcement's row, and its seconds; of ENDS, those that the node lasts."""
    if end is None or end.certainty is Certainty.SOFT:
        return MAY_END if end else None, math.inf
    if end.certainty is Certainty.SURE:
        return ENDS, end.notice_seconds
    left = seconds_between(time, end.at)
    if left > REPLACE_AHEAD_SECONDS:
        return ENDS_LATER, left - REPLACE_AHEAD_SECONDS
    return ENDS if seconds_between(end.at, time) <= PAST_SECONDS else None, left


def _suspicions(
    observed: Observed, gone: Collection[str], known: Objections
) -> Iterator[Objection]:
    suspected = nodes_of(known, SUSPECTED)
    claimed: dict[str, list[PodView]] = {}
    for pod in observed.pods:
        node = observed.nodes.get(pod.node)
        if pod.node and not pod.ended and (node is None or node.ready):
            claimed.setdefault(pod.node, []).append(pod)
    for name, pods in claimed.items():
        lost = any(pod.name in gone and pod.started for pod in pods)
        found = suspected.get(name) or (_begin(name, SUSPECTED, observed.now) if lost else None)
        agents = (agent for pod in pods if (agent := observed.agents.get(pod.name)))
        heard_at = max((agent.heard_at for agent in agents), default=0.0)
        if found and observed.now <= found.until and heard_at <= found.since:
            yield found


def _failed_starts(observed: Observed, starts: FailedStarts) -> Iterator[Objection]:
    at_least_at = observed.now - STARTS_FAILED.at_most_seconds
    failed_at: defaultdict[str, list[float]] = defaultdict(list)
    for index, pod in starts.newest.items():
        if pod.ended_at > at_least_at:
            for name in starts.nodes[index]:
                failed_at[name].append(pod.ended_at)
    for name, moments in failed_at.items():
        if name not in ("", NO_NODE) and len(moments) >= FAILED_STARTS_TO_AVOID:
            yield _begin(name, STARTS_FAILED, max(moments))


def _devices(observed: Observed, known: Objections) -> Iterator[Objection]:
    failed = [each for each in known if each.cause is DEVICE_FAILED and observed.now <= each.until]
    reported = {each.worker for each in failed}
    yield from failed
    for agent in observed.agents.values():
        pod = observed.pods_by_name.get(agent.worker)
        broken = agent.state is AgentState.FAILED and has_device_fault(agent)
        if broken and pod and pod.node and pod.name not in reported:
            yield _begin(pod.node, DEVICE_FAILED, observed.now, pod.name)
    for pod in observed.pods:
        if pod.unhealthy and not pod.ended:
            yield _begin(pod.node, DEVICE_UNHEALTHY, observed.now, pod.name)


def _ends(job: Job, observed: Observed, known: Objections) -> Iterator[Objection]:
    now, ending = observed.now, nodes_of(known, ENDS)
    for name in dict.fromkeys(pod.node for pod in observed.pods if not pod.ended):
        node = observed.nodes.get(name)
        cause, seconds = _read_end(node.end if node else None, observed.time)
        if cause is ENDS:
            before = ending.get(name, Objection(name, ENDS, now, math.inf))
            leave_by = now + max(seconds - job.grace_seconds, seconds / 2)
            yield before._replace(until=min(before.until, leave_by))
        elif cause:
            yield Objection(name, cause, now, now + seconds)


def _begin(node: str, cause: Cause, since: float, worker: str = "") -> Objection:
    return Objection(node, cause, since, since + cause.at_most_seconds, worker)
