"""Detects that most nodes are NotReady: the control plane is probably cut off, and their conditions say nothing about their pods.

The rule is that of Kubernetes' node lifecycle controller. It stops evicting pods from a zone in full disruption (no node is ready). It
slows down in partial disruption (more than two nodes, and at least 55 % of them, are not).
"""

from elastic_pytorch_operator.model.observed import Nodes

UNHEALTHY_THRESHOLD = 0.55  # kube-controller-manager's --unhealthy-zone-threshold
FEW_NODES = 2


def is_outage(nodes: Nodes) -> bool:
    """Whether the nodes' conditions say nothing about their pods."""
    if nodes.not_ready == nodes.there:
        return nodes.not_ready > 0
    return nodes.not_ready > FEW_NODES and nodes.not_ready >= UNHEALTHY_THRESHOLD * nodes.there
