"""Is a worker in, arriving, leaving or gone? One answer, from everything the operator sees of it.

No single witness decides. A silent agent may sit on a busy machine, a closed connection may be a
blip, a NotReady node may only have lost its kubelet. So silence counts only while the group makes
no progress, and a closed connection only together with a failed peer. A node's verdict counts only
if the agent on it is silent, too.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from elastic_pytorch_operator.model.failure import (
    Fault,
    describe_end,
    fault_of_worker,
    has_device_fault,
    has_succeeded,
    is_unprepared,
)
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Nodes, Observed, PodView
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.workers.silence import (
    FIRST_REPORT,
    LOST_NODE,
    NOT_STARTED,
    Silences,
)

# Beyond the pod's grace period, in which an agent has stopped its workers, or has ended.
STOP_MARGIN_SECONDS = 30.0
UNHEALTHY_THRESHOLD = 0.55  # kube-controller-manager's --unhealthy-zone-threshold
FEW_NODES = 2


class Liveness(StrEnum):
    STARTING = "starting"  # may become ready
    READY = "ready"  # may be in a round
    LEAVING = "leaving"  # alive, but to be left out
    GONE = "gone"  # lost: never comes back


@dataclass(frozen=True, slots=True)
class Candidate:
    worker: str
    index: int
    address: str
    liveness: Liveness
    why: str = ""  # it leaves or is gone; follows the worker's name in a sentence
    retired: bool = False  # the operator wants fewer workers, or another pod in its place
    port: int = 0
    heard_at: float = 0.0
    ready_since: float = 0.0  # only of READY ones outside the current round
    processes: int = 0  # 0: not known
    round: int = 0  # the newest that its agent has taken up
    restarts: int = 0  # of its workers by its agent
    failed: bool = False  # in the current round
    # One of them has failed by itself; not if that is only the echo of another failure.
    at_fault: bool = False
    keeps_processes: bool = False  # they can join another group without a restart
    failure: str = ""  # the last line of why, unless that is only the echo of another failure
    failed_since: float = 0.0
    container_runs: bool = False
    created_at: float = 0.0
    recheck_at: float | None = None
    # When it has been silent for too long, if no heartbeat comes before: each puts that off.
    silent_at: float | None = None
    # Its agent has closed its connection, and has opened none since, so no round would reach it.
    disconnected: bool = False
    # An operator before this one has heard it, and this one has not; until recheck_at it may train
    # in its group.
    unheard: bool = False
    # It is in no further round: its torchrun has failed as often as its own budget allows, or a
    # device has failed it.
    gives_up: bool = False
    succeeded: bool = False


def assess_workers(
    observed: Observed,
    suspected_since: Mapping[str, float] = MappingProxyType({}),
    *,
    stock: bool = False,
) -> tuple[Candidate, ...]:
    """Assesses all worker pods of a job, and the members of its round whose pods no longer exist.

    Args:
        suspected_since: nodes that have probably died.
        stock: no agents are heard: a node that is not ready counts once its taint has evicted the
            pod.
    """
    pods, members = observed.pods_by_name, observed.ranks
    number = observed.round.number if observed.round else 0
    outage = is_outage(observed.nodes)
    silences = Silences(observed)
    candidates = []
    for name in (*pods, *(m for m in members if m not in pods)):
        pod, agent = pods.get(name), observed.agents.get(name)
        assessment = _assess(
            pod,
            agent,
            observed,
            silences,
            suspected_since=suspected_since.get(pod.node) if pod else None,
            outage=outage,
            stock=stock,
        )
        failed = (
            name in members
            and agent is not None
            and agent.state is AgentState.FAILED
            and agent.round == number
        )
        candidates.append(
            Candidate(
                worker=name,
                index=pod.index if pod else -1,
                address=pod.address if pod else "",
                liveness=assessment.liveness,
                why=assessment.why,
                port=agent.port if agent else 0,
                heard_at=agent.heard_at if agent else 0.0,
                disconnected=agent is not None and agent.disconnected_since is not None,
                ready_since=agent.state_since if agent else 0.0,
                processes=agent.local_world_size if agent else 0,
                round=agent.round if agent else 0,
                restarts=agent.restarts if agent else 0,
                failed=failed,
                at_fault=failed
                and agent is not None
                and fault_of_worker(agent.failure) is not Fault.ECHO,
                keeps_processes=agent.keeps_processes if agent else False,
                failure=_last_line(agent) if failed and agent else "",
                failed_since=agent.state_since if failed and agent else 0.0,
                container_runs=bool(pod and pod.started),
                created_at=pod.created_at if pod else 0.0,
                recheck_at=assessment.recheck_at,
                silent_at=assessment.silent_at,
                unheard=assessment.unheard,
                gives_up=agent is not None
                and (agent.gives_up or (failed and has_device_fault(agent))),
                succeeded=has_succeeded(name, observed),
            )
        )
    return tuple(candidates)


def without_victims(
    candidates: Sequence[Candidate], victims: Collection[str], evacuated: Mapping[str, str]
) -> tuple[Candidate, ...]:
    """The workers once it is decided which of them go: those leave the group, unless they are lost or leave already.

    Args:
        victims: pods that are about to be removed.
        evacuated: those that leave their nodes, and why, to follow their names.
    """

    def leaving(worker: Candidate) -> Candidate:
        why = evacuated.get(worker.worker, "")
        said, retired = why or "is no longer wanted", not why
        return replace(
            worker,
            liveness=Liveness.LEAVING,
            why=said,
            retired=retired,
            recheck_at=None,
            silent_at=None,
            unheard=False,
        )

    going = (Liveness.GONE, Liveness.LEAVING)
    return tuple(
        c if c.worker not in victims or c.liveness in going else leaving(c) for c in candidates
    )


def _last_line(agent: AgentView) -> str:
    failure = agent.failure
    if failure is None or fault_of_worker(failure) is Fault.ECHO:
        return ""
    lines = (failure.message or failure.traceback).strip().splitlines()
    return lines[-1].strip() if lines else ""


class _Assessment(NamedTuple):
    liveness: Liveness
    why: str = ""
    recheck_at: float | None = None
    unheard: bool = False
    silent_at: float | None = None


def _assess(
    pod: PodView | None,
    agent: AgentView | None,
    observed: Observed,
    silences: Silences,
    *,
    suspected_since: float | None,
    outage: bool,
    stock: bool,
) -> _Assessment:
    now = observed.now
    if pod is None:
        return _Assessment(Liveness.GONE, "was deleted")
    if pod.ended:
        return _Assessment(
            Liveness.GONE, describe_end(pod, succeeded=has_succeeded(pod.name, observed))
        )
    node, node_until = observed.nodes.get(pod.node), math.inf
    if node is not None and (
        node.removed or not (node.ready or outage or (stock and not pod.deleting))
    ):
        node_until = silences.since(LOST_NODE, agent.heard_at).until if agent else now
        if now >= node_until:
            why = (
                "was on node {}, which has been removed"
                if node.removed
                else "is on node {}, which is not ready"
            )
            return _Assessment(Liveness.GONE, why.format(pod.node))
    if pod.deleting:
        return _Assessment(Liveness.LEAVING, "is being deleted")
    if agent is not None and agent.state is AgentState.LEAVING:
        return _Assessment(Liveness.LEAVING, "has received SIGTERM")
    if pod.disrupted:
        return _Assessment(
            Liveness.LEAVING, "is about to be deleted by the cluster (DisruptionTarget)"
        )
    if agent is None and pod.started and pod.name in observed.heard_before:
        # It may still train in a group of its own, which no round declared from now on would reach.
        silence = silences.unheard(pod.name)
        if now >= silence.until:
            return _Assessment(Liveness.GONE, silence.wait.why.format(node=pod.node))
        return _Assessment(Liveness.STARTING, recheck_at=silence.until, unheard=True)
    if agent is None or not pod.address:
        if suspected_since is None or pod.started or pod.node in pod.prefers_others_to:
            return _Assessment(Liveness.STARTING)
        lost_at = max(suspected_since, pod.created_at) + NOT_STARTED.at_most_seconds
        if now >= lost_at:
            return _Assessment(Liveness.GONE, NOT_STARTED.why.format(node=pod.node))
        return _Assessment(Liveness.STARTING, recheck_at=lost_at)
    silence = silences.heard(agent)
    if now >= silence.until:
        return _Assessment(Liveness.GONE, silence.wait.why.format(seconds=now - agent.heard_at))
    stop_until = math.inf
    if agent.state is AgentState.STOPPING:
        stop_until = agent.state_since + pod.grace_seconds + STOP_MARGIN_SECONDS
        if now >= stop_until:
            why = f"has not stopped its workers for {now - agent.state_since:.0f} s: a process outlives SIGKILL"
            return _Assessment(Liveness.GONE, why)
    failed = agent.state is AgentState.FAILED
    left_behind = failed and observed.round is not None and _hears_of(observed.round, agent)
    starting = is_unprepared(agent) or (left_behind and pod.name not in observed.ranks)
    liveness = Liveness.STARTING if starting else Liveness.READY
    silent_at = silence.until if silences.is_put_off(agent, silence) else None
    until = min(stop_until, node_until, silence.until if silent_at is None else math.inf)
    return _Assessment(
        liveness, recheck_at=until if until < math.inf else None, silent_at=silent_at
    )


def _hears_of(round_: Round, agent: AgentView) -> bool:
    """Whether an agent of an older round will report what it does since it has heard of this one."""
    return agent.round < round_.number and (agent.newest >= round_.number or bool(round_.reason))


def never_formed(number: int, members: Iterable[Candidate]) -> bool:
    """Whether a round's group cannot have formed, as the others wait for a member that lives and has not taken it up.

    Such a member may still be on its way to a step boundary in the round before.
    """
    return any(m.liveness is Liveness.READY and not m.failed and m.round < number for m in members)


def settled_at(
    newcomers: Sequence[Candidate],
    candidates: Sequence[Candidate],
    room: int,
    settle_seconds: float,
    now: float,
) -> float:
    """Returns when the newcomers need not wait for more, monotonic seconds: at once if there is no room for more.

    Args:
        newcomers: at least one, unless there is no room.
        room: how many newcomers there may be.
        settle_seconds: how long to wait for another one after the last that came.
    """
    if len(newcomers) >= room:
        return now
    since = [candidate.ready_since for candidate in newcomers]
    arriving = any(c.liveness is Liveness.STARTING and c.container_runs for c in candidates)
    settled = max(since) + settle_seconds
    return max(settled, min(since) + FIRST_REPORT.at_least_seconds) if arriving else settled


def is_outage(nodes: Nodes) -> bool:
    """Whether most nodes are NotReady: the control plane is probably cut off, and their conditions say nothing about their pods.

    The rule is that of Kubernetes' node lifecycle controller. It stops evicting pods from a zone in
    full disruption (no node is ready). It slows down in partial disruption (more than two nodes,
    and at least 55 % of them, are not).
    """
    if nodes.not_ready == nodes.there:
        return nodes.not_ready > 0
    return nodes.not_ready > FEW_NODES and nodes.not_ready >= UNHEALTHY_THRESHOLD * nodes.there
