"""Which pods of a job still use quota."""

from elastic_pytorch_operator.model.observed import Observed, PodView


def holding_pods(observed: Observed) -> tuple[PodView, ...]:
    """The worker pods whose requests count: those that may still run.

    A pod that is being deleted counts until it is gone. On a node that is lost it may never go, and uses nothing that another could have.
    """
    return tuple(pod for pod in observed.pods if (not pod.ended or pod.lingers) and not _stays_behind(pod, observed))


def _stays_behind(pod: PodView, observed: Observed) -> bool:
    node = observed.nodes.get(pod.node)
    return pod.deleting and node is not None and not node.ready
