"""Which nodes to avoid: a worker there is lost, but the cluster still reports the node as ready.

Kubernetes needs 40 to 50 s to see that a node has died. Until then its scheduler prefers the dead node, where the fewest pods run.
"""

from collections.abc import Collection, Mapping
from typing import Any

from elastic_pytorch_operator.model.announced_ends import Certainty
from elastic_pytorch_operator.model.observed import NodeView, Observed, PodView
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness
from elastic_pytorch_operator.planning.workers.placement import nodes_for

SUSPICION_SECONDS = 90.0  # by then the cluster has found out by itself


def suspect_nodes(known: Mapping[str, float], observed: Observed, candidates: Collection[Candidate]) -> dict[str, float]:
    """Returns the nodes that are suspected now.

    A suspicion ends when an agent of the job reports from there again, or the kubelet reports that the pods have ended. It also
    ends when the node is no longer reported as ready, and in any case after a while.

    Args:
        known: those suspected so far, and since when, in monotonic seconds.
        observed: the job's pods, nodes and agents.
        candidates: the workers, assessed.

    Returns:
        As `known`.
    """
    gone = {candidate.worker for candidate in candidates if candidate.liveness is Liveness.GONE}
    claimed: dict[str, list[PodView]] = {}
    for pod in observed.pods:
        if pod.node and not pod.ended and ((node := observed.nodes.get(pod.node)) is None or node.ready):
            claimed.setdefault(pod.node, []).append(pod)
    suspects = {}
    for name, pods in claimed.items():
        since = known.get(name)
        if since is None and any(pod.name in gone and pod.started for pod in pods):
            since = observed.now
        if since is None or observed.now > since + SUSPICION_SECONDS:
            continue
        heard_at = max((agent.heard_at for pod in pods if (agent := observed.agents.get(pod.name))), default=0.0)
        if heard_at <= since:
            suspects[name] = since
    return suspects


def others_have_room(
    suspects: Collection[str], nodes: Mapping[str, NodeView], pods: Collection[PodView], template: Mapping[str, Any]
) -> bool:
    """Whether a node that is not suspected will probably take a new pod.

    Args:
        suspects: those that are suspected.
        nodes: all that are known.
        pods: of the job; if the scheduler has found no node for one that keeps away from the suspected ones, the others are full.
        template: of the new pod.
    """
    if any(pod.unschedulable and pod.avoids for pod in pods):
        return False
    others = (node for node in nodes.values() if node.name not in suspects)
    return any(nodes_for(others, template["spec"]))


def avoids_in_vain(pod: PodView, suspects: Collection[str], nodes: Mapping[str, NodeView]) -> bool:
    """Whether a pod waits for a node while it avoids one that lives on, or is the only one left; not one whose end is sure."""
    return not pod.node and any(
        (pod.unschedulable or (name not in suspects and node.end is None))
        and node.ready
        and not node.unschedulable
        and (node.end is None or node.end.certainty is Certainty.SOFT)
        for name in pod.avoids
        if (node := nodes.get(name)) is not None
    )
