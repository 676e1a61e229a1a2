import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from tests.operator.running_controller import Running
from tests.operator.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(
    item: pytest.Function,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loop of a test."""
    return (
        {"virtual": VirtualTimeLoop}
        if "virtual_time" in item.fixturenames
        else {"real": asyncio.new_event_loop}
    )


@pytest.fixture
def virtual_time() -> None: ...
@pytest.fixture
async def running(virtual_time: None) -> AsyncIterator[Running]:
    running = Running()
    async with running.runs():
        yield running
