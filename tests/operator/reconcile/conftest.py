"""All that reconciles is tested in time that passes at once, some of it in a world with a queue."""

from collections.abc import AsyncIterator

import pytest

from tests.operator.queue_world import QueueWorld, playing


@pytest.fixture(autouse=True)
def of_reconcile(virtual_time: None) -> None: ...


@pytest.fixture
def quota() -> int:
    """Of the queue, in pods."""
    return 6


@pytest.fixture
async def world(quota: int) -> AsyncIterator[QueueWorld]:
    async with playing(QueueWorld(quota)) as world:
        yield world
