"""Waits for an operator of release 0.1 to end: it takes no part in an election, and acts for as long as it runs."""

import asyncio
import logging
import time

from elastic_pytorch_operator import names
from elastic_pytorch_operator.cluster import Cluster, ClusterError

logger = logging.getLogger(__name__)

WITHOUT_ELECTION = "0.1.0"
LOOK_SECONDS = 0.5
MOST_SECONDS = 60.0  # a rollout ends it within ten; its pod stays longer only where its node has died, and then it acts no more


async def until_predecessor_has_gone(cluster: Cluster, namespace: str, most_seconds: float = MOST_SECONDS) -> None:
    """Returns when no such operator has a pod.

    Args:
        cluster: where the operator's pods are.
        namespace: of the operator.
        most_seconds: returns then in any case.
    """
    until = time.monotonic() + most_seconds
    while await _is_there(cluster, namespace):
        if time.monotonic() > until:
            logger.warning("an operator of release %s still has a pod", WITHOUT_ELECTION)
            return
        await asyncio.sleep(LOOK_SECONDS)


async def _is_there(cluster: Cluster, namespace: str) -> bool:
    try:
        pods = await cluster.list_labelled_pods(namespace, f"{names.LABEL_VERSION}={WITHOUT_ELECTION}")
    except ClusterError as error:
        logger.warning("cannot see whether an operator of release %s is there: %s", WITHOUT_ELECTION, error)
        return True
    return any(pod["metadata"].get("labels", {}).get(names.LABEL_NAME) == names.OPERATOR for pod in pods)
