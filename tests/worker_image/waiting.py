"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable
from typing import Any

WAIT_SECONDS = 60.0


def wait(what: Callable[[], Any]) -> Any:
    """What a call returns, once that is true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (result := what()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return result
