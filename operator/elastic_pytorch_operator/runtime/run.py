"""Runs the operator in a cluster: a replica with kopf's watches, until a signal."""

import asyncio
import gc
import logging
import signal
import sys
import threading
from functools import partial

from elastic_pytorch_operator.cluster.clocks import TimeOfDay
from elastic_pytorch_operator.cluster.kubernetes_api import KubernetesCluster
from elastic_pytorch_operator.http.server import raise_limit
from elastic_pytorch_operator.informer.kopf_watches import watch_cluster
from elastic_pytorch_operator.leadership.election_thread import ElectionThread
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.runtime.replica import Replica, run_replicas
from elastic_pytorch_operator.runtime.settings import ReplicaSettings

logger = logging.getLogger(__name__)

JSON_LEVELS = 10_000  # of objects and lists in each other: the most that the API server reads
# After which a busy thread, such as that of the metrics, gives way to the event loop.
GIVE_WAY_SECONDS = 0.001
YOUNG_OBJECTS = 50_000  # more than requests have in flight
YOUNG_SEARCHES = 10  # to one of the middle generation
MIDDLE_SEARCHES = 10  # to one of all objects, if a quarter has been added since the last


async def run_operator(settings: ReplicaSettings) -> None:
    """Runs until SIGTERM or SIGINT; with any exception, the process is to be started again."""
    allow_deep_json()
    raise_limit()
    collect_rarely()
    sys.setswitchinterval(GIVE_WAY_SECONDS)
    metrics = Metrics(per_job=settings.metrics_per_job)
    cluster = await KubernetesCluster.connect(metrics.requested, settings.watched)
    stop = asyncio.Event()
    _stop_upon_signals(asyncio.get_running_loop(), stop)
    thread, time_of_day = ElectionThread(), TimeOfDay(cluster.server_clock.time)
    lease_cluster = await thread.run(KubernetesCluster.connect(metrics.requested))

    def begin() -> Replica:
        return Replica(
            cluster,
            settings,
            partial(watch_cluster, namespaces=settings.watched, workloads=settings.kueue),
            metrics=metrics,
            answering_since=lambda: cluster.answering_since,
            time_of_day=time_of_day,
            election=(thread, lease_cluster),
        )

    try:
        await run_replicas(begin, stop)
    finally:
        await thread.run(lease_cluster.close())
        thread.close()
        await cluster.close()
    logger.info("stopped")


def allow_deep_json() -> None:
    """Lets Python read all JSON that the API server takes: `json` calls itself for each level.

    Otherwise one such job would end each list of all jobs. This needs 2 MiB of stack.
    """
    sys.setrecursionlimit(2 * JSON_LEVELS)


def _stop_upon_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """A thread receives them: kopf puts its own handlers into the loop, and would stop it all."""
    numbers = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def wait() -> None:
        signal.sigwait(numbers)
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait, name="signals", daemon=True).start()


def collect_rarely() -> None:
    """Has Python search for circles of objects when many stay, not when many are in flight.

    With Python's own thresholds and 5,000 agents, searches took a third of the leader's processor
    time, and up to two seconds each.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_SEARCHES, MIDDLE_SEARCHES)
