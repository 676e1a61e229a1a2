"""A running controller for the tests of what it writes, in time that passes at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.reconcile.controller import Controller
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.reconcile.write_slots import WriteSlots
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.faulty_cluster import FaultyCluster
from tests.operator.running_controller import Running
from tests.operator.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(item: pytest.Function) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop of a test."""
    return {"virtual": VirtualTimeLoop} if "running" in item.fixturenames else {"real": asyncio.new_event_loop}


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    clock, began = asyncio.get_running_loop().time, datetime.now(UTC)
    cluster, cache, registry = FaultyCluster(), Cache(), AgentRegistry()
    queue: WorkQueue[JobKey] = WorkQueue(clock=clock)
    controller = Controller(
        cluster,
        cache,
        registry,
        queue,
        AgentSettings("http://operator"),
        clock,
        slots=WriteSlots(clock),
        time_of_day=lambda: began + timedelta(seconds=clock()),
    )
    cluster.watch(lambda kind, change, found: queue.add_all(cache.observe_change(kind, change, found, clock())))
    await controller.prime()
    working = asyncio.create_task(controller.run())
    yield Running(cluster, registry, cache)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
