"""Runs the operator: the agents' API, the controller and the watches, all in one event loop. One of them ending ends the process."""

import asyncio
import logging
import signal
from collections.abc import Sequence

from elastic_pytorch_operator.agent_api import AgentApi, listening
from elastic_pytorch_operator.cluster import Cluster, ClusterError
from elastic_pytorch_operator.controller import Controller
from elastic_pytorch_operator.identity import TokenReviewer
from elastic_pytorch_operator.injection import AgentImage
from elastic_pytorch_operator.job import JobKey
from elastic_pytorch_operator.roster import Roster
from elastic_pytorch_operator.store import Store
from elastic_pytorch_operator.workqueue import WorkQueue

logger = logging.getLogger(__name__)

PRIME_RETRY_SECONDS = 1.0


async def run_operator(
    cluster: Cluster, operator_url: str, port: int, agent_image: AgentImage | None, namespaces: Sequence[str] = ()
) -> None:
    """Runs until SIGTERM or SIGINT.

    Args:
        cluster: where it runs.
        operator_url: where agents find it.
        port: where it serves agents and probes.
        agent_image: which brings the agent into the pods; None: the jobs' images do.
        namespaces: whose jobs are looked after; none: those of all. The cluster is to list the same.

    Raises:
        Exception: a part has failed; everything is to be started anew.
    """
    from elastic_pytorch_operator.handlers import watch_cluster  # noqa: PLC0415  local mode must not need kopf

    store, roster = Store(), Roster()
    queue: WorkQueue[JobKey] = WorkQueue()
    controller = Controller(cluster, store, roster, queue, operator_url, agent_image=agent_image)
    api = AgentApi(store, roster, TokenReviewer(cluster), queue.add)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with listening(api, "0.0.0.0", port):  # a pod's own address is not known in advance
        await _prime(controller, stop)
        logger.info("ready", extra={"jobs": len(store.keys), "nodes": len(store.nodes)})
        parts = [
            asyncio.create_task(controller.run(), name="controller"),
            asyncio.create_task(watch_cluster(store, queue.add, namespaces), name="watches"),
            asyncio.create_task(stop.wait(), name="stop"),
        ]
        done, rest = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await asyncio.wait(rest, timeout=2)
        for task in done:
            if task.get_name() != "stop":
                task.result()
                raise RuntimeError(f"{task.get_name()} ended by itself")
    logger.info("stopped")


async def _prime(controller: Controller, stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            await controller.prime()
            return
        except ClusterError as error:
            logger.warning("cannot list the cluster yet: %s", error)
            await asyncio.sleep(PRIME_RETRY_SECONDS)
