"""A replica's connection to a cluster in memory: as slow as an API server is, and counted as one counts requests to it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.monitoring.metrics import Metrics

ANSWER_SECONDS = 0.008
METHODS = {"list": "GET", "get": "GET", "create": "POST", "review": "POST", "put": "PUT", "patch": "PATCH", "label": "PATCH"}


def connect(cluster: FakeCluster, metrics: Metrics) -> Cluster:
    """A connection, whose requests a replica's metrics count."""
    return cast(Cluster, _Connection(cluster, metrics))


class _Connection:
    def __init__(self, cluster: FakeCluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        method = METHODS.get(verb.partition("_")[0], "DELETE")

        async def request(*arguments: Any, **options: Any) -> Any:
            await asyncio.sleep(ANSWER_SECONDS)
            try:
                answer = await getattr(self._cluster, verb)(*arguments, **options)
            except ClusterError as error:
                self._metrics.requested(method, error.code)
                raise
            missing = answer is None and verb in ("get_lease", "get_secret")
            self._metrics.requested(method, 404 if missing else 201 if method == "POST" else 200)
            return answer

        return request
