from collections.abc import AsyncIterator

import pytest

from tests.operator.agents.served import Served, serving


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as operator:
        yield operator
