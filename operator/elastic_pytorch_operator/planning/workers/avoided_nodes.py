"""Which nodes new pods keep away from. However large the cluster is, a pod names few of them.

Its affinity and its annotations name each node, and the API server refuses a pod whose annotations are larger than 256 KiB. What does
not fit is left to the scheduler, and to the evacuation of the pods that it places there.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.model.announced_ends import AnnouncedEnd, Certainty
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.workers.evacuation import seconds_left
from elastic_pytorch_operator.planning.workers.placement import nodes_for, tolerates
from elastic_pytorch_operator.planning.workers.suspect_nodes import others_have_room

MAX_AVOIDED = 200
MAX_UNWANTED = 50


@dataclass(frozen=True, slots=True)
class AvoidedNodes:
    """Nodes that are not for new pods.

    Attributes:
        never: no pod goes there, even if it has to wait.
        unwanted: a pod goes there only if no other node takes it.
    """

    never: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()


def nodes_to_avoid(observed: Observed, template: Manifest, doubtful: Collection[str]) -> AvoidedNodes:
    """Which nodes new pods keep away from.

    A node that ends for certain is worse than none. A doubtful one is not, but worse than any other. One that may end is as good as any
    while it is there: if a pod waited, an autoscaler might buy another node.

    Args:
        observed: all nodes, and the job's pods.
        template: of the new pods.
        doubtful: nodes that have probably died, and those where pods have failed to start.
    """
    marked = (node for node in observed.nodes.values() if node.end)
    ending = {node.name: node.end for node in nodes_for(marked, template["spec"]) if node.end}
    sure = {name for name, end in ending.items() if seconds_left(end, observed.time) is not None}
    soft = {name for name, end in ending.items() if end.certainty is Certainty.SOFT and not _repels(end, template)}
    never = sure
    if doubtful and others_have_room({*sure, *doubtful}, observed.nodes, observed.pods, template):
        never = {*sure, *doubtful}
    unwanted = {*doubtful, *soft} - never
    own = {pod.node for pod in observed.pods}
    return AvoidedNodes(_first(never, MAX_AVOIDED, doubtful, own), _first(unwanted, MAX_UNWANTED, doubtful, own))


def _repels(end: AnnouncedEnd, template: Manifest) -> bool:
    """Whether the scheduler itself prefers other nodes for a pod: the announcement is a taint that the pod does not tolerate."""
    taint = end.taint
    return taint is not None and taint.effect == "PreferNoSchedule" and not tolerates(template["spec"], taint)


def _first(nodes: Iterable[str], limit: int, known: Collection[str], own: Collection[str]) -> tuple[str, ...]:
    """As many nodes as a pod may name: those known to be bad come first, then those where the job has been."""
    ranked = sorted(nodes, key=lambda name: (name not in known, name not in own, name))
    return tuple(sorted(ranked[:limit]))
