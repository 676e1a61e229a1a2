"""A running controller for the tests of what it writes."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from elastic_pytorch_operator.controller import Controller
from elastic_pytorch_operator.job import JobKey
from elastic_pytorch_operator.local import feed
from elastic_pytorch_operator.roster import Roster
from elastic_pytorch_operator.store import Store
from elastic_pytorch_operator.workqueue import WorkQueue
from faulty_cluster import FaultyCluster
from running_controller import Running


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    cluster, store, roster = FaultyCluster(), Store(), Roster()
    queue: WorkQueue[JobKey] = WorkQueue()
    controller = Controller(cluster, store, roster, queue, "http://operator")
    cluster.watch(lambda kind, change, found: feed(store, queue.add, kind, change, found))
    await controller.prime()
    working = asyncio.create_task(controller.run())
    yield Running(cluster, roster, store)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
