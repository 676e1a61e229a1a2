"""Has the agents' Service point to the replica that leads: the Service selects the pod that carries a label, and the leader takes it.

So nobody has to be asked who leads, a replica that stands by is ready like any other, and one whose node has died is out of the
Service as soon as another leads, not when the node is found dead.
"""

import asyncio
import logging

from elastic_pytorch_operator import names
from elastic_pytorch_operator.cluster import Cluster, ClusterError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
LEADER = "true"


async def take_endpoint(cluster: Cluster, namespace: str, pod: str) -> None:
    """Moves the label to a pod; tries until it is there.

    Args:
        cluster: where the operator's pods are.
        namespace: of the operator.
        pod: of the replica that leads.
    """
    while True:
        try:
            labelled = await cluster.list_labelled_pods(namespace, f"{names.LABEL_LEADER}={LEADER}")
            others = {found["metadata"]["name"] for found in labelled} - {pod}
            await asyncio.gather(
                cluster.label_pod(namespace, pod, names.LABEL_LEADER, LEADER),
                *(cluster.label_pod(namespace, other, names.LABEL_LEADER, None) for other in others),
            )
            return
        except ClusterError as error:
            logger.warning("cannot point the agents' Service here: %s", error)
            await asyncio.sleep(RETRY_SECONDS)
