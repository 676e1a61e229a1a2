"""The operator on a cluster in memory, with its own HTTP server and TLS."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.runtime.replica import Replica
from elastic_pytorch_operator.runtime.settings import ReplicaSettings
from elastic_pytorch_operator.spec.job import JobKey
from elastic_pytorch_operator.tls.secret import SECRET_NAME


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def running_operator() -> AsyncIterator[FakeCluster]:
    cluster, port, stop = FakeCluster(), a_free_port(), asyncio.Event()

    async def watch(store: Cache, request_work: Callable[[JobKey, float], None]) -> None:
        def watch(kind: str, change: str, manifest: dict[str, Any]) -> None:
            for key in store.observe_change(kind, change, manifest, time.monotonic()):
                request_work(key)

        cluster.watch(watch)
        await asyncio.Event().wait()

    settings = ReplicaSettings(f"https://localhost:{port}", "127.0.0.1", port, a_free_port())
    cluster.add_object("Secret", settings.namespace, SECRET_NAME)
    replica = asyncio.create_task(Replica(cluster, settings, watch).run(stop))
    yield cluster
    stop.set()
    await replica
