"""Is a worker in, arriving, leaving or gone? One answer, from everything the operator sees of it.

Silence counts only while the group makes no progress, a closed connection only together with a
failed peer, and a node's condition only if the agent there is silent, too.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType

from elastic_pytorch_operator.model.failure import (
    Fault,
    describe_end,
    failed_members,
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

STOP_MARGIN_SECONDS = 30.0  # after the grace period, for an agent to stop its workers or to end
UNHEALTHY_THRESHOLD = 0.55  # kube-controller-manager's --unhealthy-zone-threshold
FEW_NODES = 2
# Of a worker whose agent has not reported: it has taken up no round.
NO_AGENT = AgentView("", "", AgentState.READY, 0, 0, 0, 0, 0, 0.0, 0.0)


class Liveness(StrEnum):
    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"  # alive, but to be left out
    GONE = "gone"  # never comes back


@dataclass(frozen=True, slots=True)
class Candidate:
    worker: str
    index: int
    address: str
    liveness: Liveness
    why: str = ""  # it leaves or is gone, to follow its name
    retired: bool = False  # the operator wants fewer workers, or another pod in its place
    agent: AgentView = NO_AGENT
    failed: bool = False  # in the current round
    failure: str | None = None  # the last line of one that is no echo of another failure
    container_runs: bool = False
    recheck_at: float | None = None
    silent_at: float | None = None  # too long silent; each heartbeat delays it
    # An earlier operator had reports of it, this one has not; until recheck_at it may still train.
    unheard: bool = False
    # It is in no further round, as its torchrun has failed as often as it may, or a device failed.
    gives_up: bool = False
    succeeded: bool = False

    @property
    def processes(self) -> int:
        """0: not known."""
        return self.agent.local_world_size

    @property
    def ready(self) -> bool:
        return self.liveness is Liveness.READY

    @property
    def alive(self) -> bool:
        return self.liveness in (Liveness.READY, Liveness.STARTING)

    @property
    def gone(self) -> bool:
        return self.liveness is Liveness.GONE


def assess_workers(
    observed: Observed, suspected_since: Mapping[str, float] = MappingProxyType({})
) -> tuple[Candidate, ...]:
    """Assesses all worker pods, and the members of the round whose pods no longer exist.

    Args:
        suspected_since: by nodes that have probably died.
    """
    pods, members = observed.pods_by_name, observed.ranks
    silences, failures = Silences(observed), {a.worker: a for a in failed_members(observed)}
    candidates = []
    for name in (*pods, *(m for m in members if m not in pods)):
        pod, agent = pods.get(name), observed.agents.get(name)
        failed = failures.get(name)
        candidate = partial(
            Candidate,
            name,
            pod.index if pod else -1,
            pod.address if pod else "",
            agent=agent or NO_AGENT,
            failed=failed is not None,
            failure=_last_line(failed) if failed else None,
            container_runs=bool(pod and pod.started),
            gives_up=bool(agent and (agent.gives_up or (failed and has_device_fault(failed)))),
            succeeded=has_succeeded(name, observed),
        )
        since = suspected_since.get(pod.node) if pod else None
        candidates.append(_assess(candidate, pod, agent, observed, silences, since))
    return tuple(candidates)


def without_victims(
    candidates: Sequence[Candidate], victims: Collection[str], evacuated: Mapping[str, str]
) -> tuple[Candidate, ...]:
    def leaving(worker: Candidate) -> Candidate:
        if worker.worker not in victims or not worker.alive or worker.unheard:
            return worker
        why = evacuated.get(worker.worker, "")
        return replace(
            worker,
            liveness=Liveness.LEAVING,
            why=why or "is no longer wanted",
            retired=not why,
            recheck_at=None,
            silent_at=None,
        )

    return tuple(map(leaving, candidates))


def _last_line(agent: AgentView) -> str | None:
    failure = agent.failure
    if failure is None or fault_of_worker(failure) is Fault.ECHO:
        return None
    lines = (failure.message or failure.traceback).strip().splitlines()
    return lines[-1].strip() if lines else ""


def _assess(
    candidate: Callable[..., Candidate],  # of a liveness, and why
    pod: PodView | None,
    agent: AgentView | None,
    observed: Observed,
    silences: Silences,
    suspected_since: float | None,
) -> Candidate:
    now = observed.now
    if pod is None:
        return candidate(Liveness.GONE, "was deleted")
    if pod.ended:
        end = describe_end(pod, succeeded=has_succeeded(pod.name, observed))
        return candidate(Liveness.GONE, end)
    node_until = math.inf
    if has_lost_node(pod, observed):
        node_until = silences.since(LOST_NODE, agent.heard_at).until if agent else now
        if now >= node_until:
            why = f"is on node {pod.node}, which is not ready"
            if observed.on_removed_node(pod):
                why = f"was on node {pod.node}, which has been removed"
            return candidate(Liveness.GONE, why)
    if pod.deleting:
        return candidate(Liveness.LEAVING, "is being deleted")
    if agent is not None and agent.state is AgentState.LEAVING:
        return candidate(Liveness.LEAVING, "has received SIGTERM")
    if pod.disrupted:
        why = "is about to be deleted by the cluster (DisruptionTarget)"
        return candidate(Liveness.LEAVING, why)
    if agent is None and pod.started and pod.name in observed.heard_before:
        # It may still train in a group of its own, which no round declared from now on would reach.
        silence = silences.unheard(pod.name)
        if now >= silence.until:
            return candidate(Liveness.GONE, silence.wait.why.format(node=pod.node))
        return candidate(Liveness.STARTING, recheck_at=silence.until, unheard=True)
    if agent is None or not pod.address:
        if suspected_since is None or pod.started or pod.node in pod.prefers_others_to:
            runs = pod.stock and pod.started
            return candidate(Liveness.READY if runs else Liveness.STARTING)
        lost_at = max(suspected_since, pod.created_at) + NOT_STARTED.at_most_seconds
        if now >= lost_at:
            return candidate(Liveness.GONE, NOT_STARTED.why.format(node=pod.node))
        return candidate(Liveness.STARTING, recheck_at=lost_at)
    silence = silences.heard(agent)
    if now >= silence.until:
        return candidate(Liveness.GONE, silence.wait.why.format(seconds=now - agent.heard_at))
    stop_until = math.inf
    if agent.state is AgentState.STOPPING:
        stop_until = agent.state_since + pod.grace_seconds + STOP_MARGIN_SECONDS
        if now >= stop_until:
            seconds = f"{now - agent.state_since:.0f} s"
            why = f"has not stopped its workers for {seconds}: a process outlives SIGKILL"
            return candidate(Liveness.GONE, why)
    failed = agent.state is AgentState.FAILED
    left_behind = failed and observed.round is not None and _hears_of(observed.round, agent)
    starting = is_unprepared(agent) or (left_behind and pod.name not in observed.ranks)
    liveness = Liveness.STARTING if starting else Liveness.READY
    silent_at = silence.until if silences.is_put_off(agent, silence) else None
    until = min(stop_until, node_until, silence.until if silent_at is None else math.inf)
    recheck_at = until if until < math.inf else None
    return candidate(liveness, recheck_at=recheck_at, silent_at=silent_at)


def _hears_of(round_: Round, agent: AgentView) -> bool:
    """Whether an agent of an older round has received this one, and will report what it does."""
    return agent.round < round_.number and (agent.newest >= round_.number or bool(round_.reason))


def never_formed(number: int, members: Iterable[Candidate]) -> bool:
    """Whether a live member, perhaps on its way to a step boundary, has not taken the round up."""
    return any(m.ready and not m.failed and m.agent.round < number for m in members)


def settled_at(
    newcomers: Sequence[Candidate],
    candidates: Sequence[Candidate],
    room: int,
    settle_seconds: float,
    now: float,
) -> float:
    """When the newcomers need not wait for more, monotonic seconds; `room` is for how many."""
    if len(newcomers) >= room:
        return now
    since = [candidate.agent.state_since for candidate in newcomers]
    arriving = any(c.liveness is Liveness.STARTING and c.container_runs for c in candidates)
    settled = max(since) + settle_seconds
    return max(settled, min(since) + FIRST_REPORT.at_least_seconds) if arriving else settled


def has_lost_node(pod: PodView, observed: Observed) -> bool:
    """Whether a pod's node has been removed, or is NotReady for itself alone.

    With stock torchrun, it may only have lost its connection, until its taint evicts the pod.
    """
    node = observed.nodes.get(pod.node)
    if node is None:
        return False
    stays = node.ready or is_outage(observed.nodes) or (pod.stock and not pod.deleting)
    return node.removed or not stays


def is_outage(nodes: Nodes) -> bool:
    """Whether most nodes are NotReady, as when the control plane is cut off.

    Their conditions then say nothing about their pods. The rule is that of Kubernetes' node
    lifecycle controller for a zone in full or partial disruption.
    """
    if nodes.not_ready == nodes.there:
        return nodes.not_ready > 0
    return nodes.not_ready > FEW_NODES and nodes.not_ready >= UNHEALTHY_THRESHOLD * nodes.there
