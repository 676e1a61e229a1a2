"""Points the agents' Service at the leader: the Service selects the pod that carries a label, and the leader moves it to its own.

So no replica has to be asked who leads, and one on standby is ready like any other. A replica whose node has died leaves
the Service as soon as another leads, not when the node is found dead.
"""

import asyncio
import logging

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
CHECK_SECONDS = 5.0
LEADER = "true"


async def take_label(cluster: Cluster, namespace: str, pod: str) -> list[Manifest]:
    """Moves the label to a pod; tries until it is there.

    Args:
        cluster: where the operator's pods are.
        namespace: of the operator.
        pod: of the replica that leads.

    Returns:
        The other pods that carried it.
    """
    while True:
        try:
            labelled = await cluster.list_labelled_pods(namespace, f"{names.LABEL_LEADER}={LEADER}")
            others = [found for found in labelled if found["metadata"]["name"] != pod]
            # The new one first: kube-proxy takes up the first change at once, and the next one a second later.
            if len(others) == len(labelled):
                await cluster.label_pod(namespace, pod, names.LABEL_LEADER, LEADER)
            for other in others:
                await cluster.label_pod(namespace, other["metadata"]["name"], names.LABEL_LEADER, None)
            return others
        except ClusterError as error:
            logger.warning("cannot point the agents' Service here: %s", error)
            await asyncio.sleep(RETRY_SECONDS)


async def keep_label(cluster: Cluster, namespace: str, pod: str) -> None:
    """Corrects the label until it is cancelled: a person may remove it, or a late write of an earlier leader add another."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        await take_label(cluster, namespace, pod)
