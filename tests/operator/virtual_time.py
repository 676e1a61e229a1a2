"""An event loop whose time passes at once, as soon as nothing else is left to do.

Nothing on it may wait for a socket or a thread.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

TICK_SECONDS = 1e-6  # passes in any case, so that a wait for a moment that is all but there ends


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Begins at second 0."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for something that never comes"
        self._loop.now += max(TICK_SECONDS, timeout)
        return []


def run_in_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main)
