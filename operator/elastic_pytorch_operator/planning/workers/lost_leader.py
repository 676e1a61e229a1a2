"""Which workers were lost with the leader's node: its successor waits for their agents for a shorter time.

Three witnesses have to agree: the leader let its lease run out, the agent of a worker beside it is not heard, and the worker's group has
broken. One of them alone (an operator out of memory, a slow agent, an exception) loses no worker.
"""

from elastic_pytorch_operator.model.failure import failed_members
from elastic_pytorch_operator.model.observed import Observed


def lost_with_leader(observed: Observed) -> frozenset[str]:
    """The workers that were probably lost with the node of the operator that led before this one."""
    if not observed.lost_leader_node or not failed_members(observed):
        return frozenset()
    silent = observed.heard_before - observed.agents.keys()
    return frozenset(
        pod.name for pod in observed.pods if pod.node == observed.lost_leader_node and pod.started and pod.name in silent
    )
