"""A running controller for the tests of what it writes."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.reconcile.controller import Controller
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.faulty_cluster import FaultyCluster
from tests.operator.running_controller import Running


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    cluster, cache, registry = FaultyCluster(), Cache(), AgentRegistry()
    queue: WorkQueue[JobKey] = WorkQueue()
    controller = Controller(cluster, cache, registry, queue, AgentSettings("http://operator"))
    cluster.watch(lambda kind, change, found: queue.add_all(cache.observe_change(kind, change, found, time.monotonic())))
    await controller.prime()
    working = asyncio.create_task(controller.run())
    yield Running(cluster, registry, cache)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
