"""Is a worker in, arriving, leaving or gone? One answer, from everything the operator sees of it.

No single witness decides. A silent agent may sit on a busy machine, a closed connection may be a blip, a NotReady node may only have
lost its kubelet. So silence counts only while the group makes no progress, and a closed connection only together with a failed peer.
A node's verdict counts only if the agent on it is silent, too.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from elastic_pytorch_operator.model.failure import Fault, describe_end, failed_members, fault_of_worker
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed, PodView
from elastic_pytorch_operator.planning.workers.lost_leader import lost_with_leader
from elastic_pytorch_operator.planning.workers.node_outage import is_outage
from elastic_pytorch_operator.planning.workers.out_of_reach import out_of_reach_until

SILENCE_SECONDS = 3.0  # of heartbeats that come every second; longer in proportion where they come less often
GROUP_SILENCE_SECONDS = 30.0  # of a whole group, while agents of other jobs are heard
DEAF_RECHECK_SECONDS = 10.0  # between two plans while no agent of any job is heard
BROKEN_SILENCE_SECONDS = 1.2  # in a group that has broken, whose agents have all been asked to report
DISCONNECTED_SECONDS = 0.25  # to open a poll in place of one that was cut; after that it is to blame for its peers' failure
NODE_SILENCE_SECONDS = 1.5  # of an agent whose node is not ready, or has been removed
UNHEARD_SECONDS = 15.0  # of an agent that has reported to an operator before this one
MAX_CROWDED_SECONDS = 60.0  # for which such an agent may have to wait before it is let in
MAX_LATE_SECONDS = 30.0  # for which this operator may be unable to hear an agent; then its silence counts all the same
STOP_MARGIN_SECONDS = 30.0  # beyond the pod's grace period, in which an agent has stopped its workers, or has ended
START_ON_SUSPECT_SECONDS = 5.0  # what a container gets to start on a node that has lost another worker


class Liveness(StrEnum):
    """A worker's part in the group."""

    STARTING = "starting"  # may become ready
    READY = "ready"  # may be in a round
    LEAVING = "leaving"  # alive, but to be left out
    GONE = "gone"  # lost: never comes back


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker pod, assessed for the next round.

    Attributes:
        why: what made it leave or be gone, for people: follows the worker's name in a sentence.
        retired: it leaves because the operator wants fewer workers, or another pod in its place.
        ready_since: since when it has been waiting for a round; only for READY ones outside the current round.
        processes: how many it runs; 0: not known.
        round: the newest round that its agent has taken up.
        restarts: how often its agent has started its workers again.
        failed: its workers have failed in the current round.
        failure: the last line of why, unless that is only the echo of another failure.
        recheck_at: when its liveness may change without any further event; None: never.
        unchecked: it would be ready, but its node has not passed its check.
        unheard: an operator before this one has heard it, and this one has not; until recheck_at it may train in its group.
    """

    worker: str
    index: int
    address: str
    liveness: Liveness
    why: str = ""
    retired: bool = False
    port: int = 0
    heard_at: float = 0.0
    ready_since: float = 0.0
    processes: int = 0
    round: int = 0
    restarts: int = 0
    failed: bool = False
    failure: str = ""
    failed_since: float = 0.0
    container_runs: bool = False
    created_at: float = 0.0
    recheck_at: float | None = None
    unchecked: bool = False
    unheard: bool = False


def assess_workers(
    observed: Observed,
    victims: frozenset[str] = frozenset(),
    suspects: Mapping[str, float] = MappingProxyType({}),
    evacuated: Mapping[str, str] = MappingProxyType({}),
    *,
    stock: bool = False,
) -> tuple[Candidate, ...]:
    """Assesses all worker pods of a job, and the members of its round whose pods no longer exist.

    Args:
        observed: the job's pods, nodes, agents and current round.
        victims: pods that are about to be removed; they count as leaving.
        suspects: nodes that have probably died, and since when that is suspected.
        evacuated: workers that leave their nodes now, and why, to follow their names in a sentence.
        stock: there are no agents to ask, so that a node that is not ready counts once its taint has evicted the pod.
    """
    pods, members = observed.pods_by_name, observed.ranks
    number = observed.round.number if observed.round else 0
    broken_since = min((agent.state_since for agent in failed_members(observed)), default=None)
    heard = [agent.heard_at for name in members if (agent := observed.agents.get(name))]
    last_heard = max(heard, default=observed.now)
    last_progress = max((a.progressed_at for name in members if (a := observed.agents.get(name))), default=0.0)
    member_silence_seconds, newcomer_silence_seconds = (
        _silence_seconds(observed, last_heard),
        _silence_seconds(observed, observed.now),
    )
    unheard_until = _unheard_until(observed)
    outage = is_outage(observed.nodes)
    lost_beside_leader = lost_with_leader(observed)
    candidates = []
    for name in (*pods, *(m for m in members if m not in pods)):
        pod, agent = pods.get(name), observed.agents.get(name)
        member = name in members
        evidence = _Evidence(
            pod=pod,
            agent=agent,
            victim=name in victims,
            evacuated=evacuated.get(name, ""),
            suspected_since=suspects.get(pod.node) if pod else None,
            broken_since=broken_since if member else None,
            silence_seconds=member_silence_seconds if member else newcomer_silence_seconds,
            last_progress=last_progress if member else 0.0,
            unheard_until=unheard_until if name in observed.heard_before else None,
            lost_beside_leader=name in lost_beside_leader,
        )
        assessment = _assess(evidence, observed, outage=outage, stock=stock)
        failed = member and agent is not None and agent.state is AgentState.FAILED and agent.round == number
        candidates.append(
            Candidate(
                worker=name,
                index=pod.index if pod else -1,
                address=pod.address if pod else "",
                liveness=assessment.liveness,
                why=assessment.why,
                retired=assessment.retired,
                port=agent.port if agent else 0,
                heard_at=agent.heard_at if agent else 0.0,
                ready_since=agent.state_since if agent else 0.0,
                processes=agent.local_world_size if agent else 0,
                round=agent.round if agent else 0,
                restarts=agent.restarts if agent else 0,
                failed=failed,
                failure=_last_line(agent) if failed and agent else "",
                failed_since=agent.state_since if failed and agent else 0.0,
                container_runs=bool(pod and pod.started),
                created_at=pod.created_at if pod else 0.0,
                recheck_at=assessment.recheck_at,
                unheard=assessment.unheard,
            )
        )
    return tuple(candidates)


def _last_line(agent: AgentView) -> str:
    failure = agent.failure
    if failure is None or fault_of_worker(failure) is Fault.ECHO:
        return ""
    lines = (failure.message or failure.traceback).strip().splitlines()
    return lines[-1].strip() if lines else ""


def _silence_seconds(observed: Observed, last_heard: float) -> float:
    """How long a worker may be silent, in seconds.

    Args:
        observed: what is known.
        last_heard: when any member of its group was last heard.
    """
    silence_seconds = SILENCE_SECONDS * observed.heartbeat_seconds
    if observed.now - last_heard < silence_seconds:
        return silence_seconds
    if observed.now - observed.last_heard_at < SILENCE_SECONDS:
        return GROUP_SILENCE_SECONDS
    return math.inf  # no agent of any job is heard: the fault is on this side, and only the API server's view counts


def _unheard_until(observed: Observed) -> float:
    """How long to wait for an agent that was heard before this operator began to listen, but never since; monotonic seconds."""
    if observed.now - observed.last_heard_at >= SILENCE_SECONDS:
        return observed.now + UNHEARD_SECONDS  # no agent of any job is heard: the fault is on this side
    crowded_until = min(observed.lets_in_since, observed.listening_since + MAX_CROWDED_SECONDS)
    arrived_until = max(observed.listening_since, observed.arrived_at, crowded_until) + UNHEARD_SECONDS
    return max(arrived_until, out_of_reach_until(observed))


def _audible_since(observed: Observed, moment: float) -> float:
    """A moment, or a later one since which this operator has been able to hear agents."""
    return max(moment, min(observed.on_time_since, moment + MAX_LATE_SECONDS))


class _Assessment(NamedTuple):
    """What is decided about one worker; the fields are those of `Candidate`."""

    liveness: Liveness
    why: str = ""
    recheck_at: float | None = None
    retired: bool = False
    unheard: bool = False


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What is known of one worker.

    Attributes:
        pod: None: it has been deleted.
        agent: None: it has not been heard.
        victim: its pod is about to be removed.
        evacuated: why it leaves its node now; empty: it does not.
        suspected_since: since when its node has probably been dead; None: the node is not suspected.
        broken_since: when the first worker of its group failed; None: none has, or it is in no group.
        silence_seconds: how long its agent may be silent.
        last_progress: when its group last finished a step.
        unheard_until: how long to wait for an agent that an operator before this one has heard; None: none has.
        lost_beside_leader: it was probably lost with the node of the leader before this one.
    """

    pod: PodView | None
    agent: AgentView | None
    victim: bool
    evacuated: str
    suspected_since: float | None
    broken_since: float | None
    silence_seconds: float
    last_progress: float
    unheard_until: float | None
    lost_beside_leader: bool


def _assess(evidence: _Evidence, observed: Observed, *, outage: bool, stock: bool) -> _Assessment:
    """The liveness of one worker.

    Args:
        evidence: what is known of it.
        observed: the moment, with the nodes.
        outage: the nodes' conditions say nothing about their pods.
        stock: there are no agents to ask.
    """
    pod, agent, now = evidence.pod, evidence.agent, observed.now
    if pod is None:
        return _Assessment(Liveness.GONE, "was deleted")
    if pod.ended:
        return _Assessment(Liveness.GONE, describe_end(pod))
    silent_for = now - _audible_since(observed, agent.heard_at) if agent else 0.0
    node = observed.nodes.get(pod.node)
    silent = agent is None or silent_for > NODE_SILENCE_SECONDS * observed.heartbeat_seconds
    if node is not None and node.removed and silent:
        return _Assessment(Liveness.GONE, f"was on node {pod.node}, which has been removed")
    if node is not None and not node.ready and not outage and (pod.deleting if stock else silent):
        return _Assessment(Liveness.GONE, f"is on node {pod.node}, which is not ready")
    if pod.deleting:
        return _Assessment(Liveness.LEAVING, "is being deleted")
    if agent is not None and agent.state is AgentState.LEAVING:
        return _Assessment(Liveness.LEAVING, "has received SIGTERM")
    if pod.disrupted:
        return _Assessment(Liveness.LEAVING, "is about to be deleted by the cluster (DisruptionTarget)")
    if evidence.evacuated:
        return _Assessment(Liveness.LEAVING, evidence.evacuated)
    if evidence.victim:
        return _Assessment(Liveness.LEAVING, "is no longer wanted", retired=True)
    if agent is None and pod.started and evidence.unheard_until is not None:
        if evidence.lost_beside_leader:
            return _Assessment(
                Liveness.GONE, f"is on node {pod.node}, which has probably died with the operator that led before"
            )
        # It may still train in a group of its own, which no round declared from now on would reach.
        if now >= evidence.unheard_until:
            return _Assessment(Liveness.GONE, "has not been heard since this operator began to listen")
        return _Assessment(Liveness.STARTING, recheck_at=evidence.unheard_until, unheard=True)
    if agent is None or not pod.address:
        if evidence.suspected_since is None or pod.started or pod.node in pod.prefers_others_to:
            return _Assessment(Liveness.STARTING)
        lost_at = max(evidence.suspected_since, pod.created_at) + START_ON_SUSPECT_SECONDS
        if now >= lost_at:
            return _Assessment(Liveness.GONE, f"does not start on node {pod.node}, which has probably died")
        return _Assessment(Liveness.STARTING, recheck_at=lost_at)
    if evidence.broken_since is not None and agent.heard_at <= evidence.broken_since:
        broken_until = _audible_since(observed, evidence.broken_since) + BROKEN_SILENCE_SECONDS
        closed_until = math.inf
        if agent.disconnected_since is not None:
            closed_until = _audible_since(observed, agent.disconnected_since) + DISCONNECTED_SECONDS
        if now > closed_until:
            return _Assessment(Liveness.GONE, "has closed its connection while its peers failed")
        if now > broken_until:
            return _Assessment(Liveness.GONE, f"has been silent for {silent_for:.1f} s while its peers failed")
        return _Assessment(Liveness.READY, recheck_at=min(broken_until, closed_until))
    stop_until = math.inf
    if agent.state is AgentState.STOPPING:
        stop_until = agent.state_since + pod.grace_seconds + STOP_MARGIN_SECONDS
        if now >= stop_until:
            why = f"has not stopped its workers for {now - agent.state_since:.0f} s: a process outlives SIGKILL"
            return _Assessment(Liveness.GONE, why)
    lost_at = _audible_since(observed, agent.heard_at) + evidence.silence_seconds
    if evidence.last_progress > agent.heard_at:  # its group needs it for each step
        lost_at = max(lost_at, evidence.last_progress + SILENCE_SECONDS * observed.heartbeat_seconds)
    if now > lost_at:
        return _Assessment(Liveness.GONE, f"has been silent for {silent_for:.1f} s")
    if math.isinf(lost_at):  # when other jobs are heard again, nothing tells this one
        lost_at = max(agent.heard_at + GROUP_SILENCE_SECONDS, now + DEAF_RECHECK_SECONDS)
    return _Assessment(Liveness.READY, recheck_at=min(lost_at, stop_until))


def never_formed(number: int, members: Iterable[Candidate]) -> bool:
    """Whether a round's group cannot have formed, as the others wait for a member that lives and has not taken it up.

    Such a member may still be on its way to a step boundary in the round before.
    """
    return any(m.liveness is Liveness.READY and not m.failed and m.round < number for m in members)
