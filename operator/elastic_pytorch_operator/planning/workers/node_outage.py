"""Detects that most nodes are NotReady: the control plane is probably cut off, and their conditions say nothing about their pods.

The rule is that of Kubernetes' node lifecycle controller. It stops evicting pods from a zone in full disruption (no node is ready). It
slows down in partial disruption (more than two nodes, and at least 55 % of them, are not).
"""

from collections.abc import Mapping

from elastic_pytorch_operator.model.observed import NodeView

UNHEALTHY_THRESHOLD = 0.55  # kube-controller-manager's --unhealthy-zone-threshold
FEW_NODES = 2


def is_outage(nodes: Mapping[str, NodeView]) -> bool:
    """Whether the nodes' conditions say nothing about their pods."""
    there = [node for node in nodes.values() if not node.removed]
    not_ready = sum(not node.ready for node in there)
    if not_ready == len(there):
        return not_ready > 0
    return not_ready > FEW_NODES and not_ready >= UNHEALTHY_THRESHOLD * len(there)
