"""Which nodes are better avoided: a worker there is lost, and yet the cluster still takes the node for ready.

Kubernetes needs some 40 s to see that a node has died. Until then its scheduler likes the dead node best: the fewest pods run there.
"""

from collections.abc import Collection, Mapping

from elastic_pytorch_operator.observed import NodeView, Observed, PodView
from elastic_pytorch_operator.standing import Candidate, Standing

SUSPICION_SECONDS = 90.0  # after that the cluster has made up its own mind


def suspect_nodes(known: Mapping[str, float], observed: Observed, candidates: Collection[Candidate]) -> dict[str, float]:
    """Tells which nodes are suspected now.

    A suspicion ends when an agent of the job is heard from there again, when the kubelet says that the pods have ended, when the node is
    no longer called ready, and in any case after a while.

    Args:
        known: those suspected so far, and since when, in monotonic seconds.
        observed: the job's pods, nodes and agents.
        candidates: the workers, weighed.

    Returns:
        As `known`.
    """
    gone = {candidate.worker for candidate in candidates if candidate.standing is Standing.GONE}
    claimed: dict[str, list[PodView]] = {}
    for pod in observed.pods:
        if pod.node and not pod.ended and (node := observed.nodes.get(pod.node)) and node.ready:
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


def nodes_to_avoid(suspects: Collection[str], nodes: Mapping[str, NodeView]) -> tuple[str, ...]:
    """The suspected nodes, unless no other node could take a pod: then none."""
    others = any(node.ready and not node.unschedulable for node in nodes.values() if node.name not in suspects)
    return tuple(sorted(suspects)) if others else ()


def avoids_in_vain(pod: PodView, suspects: Collection[str], nodes: Mapping[str, NodeView]) -> bool:
    """Whether a pod waits for a place and keeps away from a node that would be a good one after all."""
    return not pod.node and any(
        name not in suspects and (node := nodes.get(name)) is not None and node.ready and not node.unschedulable
        for name in pod.avoids
    )
