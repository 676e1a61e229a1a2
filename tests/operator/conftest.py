"""A running controller for the tests of what it writes, in time that passes at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from tests.operator.running_controller import Running
from tests.operator.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(item: pytest.Function) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop of a test."""
    return {"virtual": VirtualTimeLoop} if "running" in item.fixturenames else {"real": asyncio.new_event_loop}


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    running = Running()
    async with running.runs():
        yield running
