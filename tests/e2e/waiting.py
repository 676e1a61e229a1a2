"""Waits for what must come, for longer than a slow and busy machine needs."""

import time
from collections.abc import Callable
from typing import TypeVar

WAIT_SECONDS = 180.0

Answer = TypeVar("Answer")


def until(ask: Callable[[], Answer], what: str | Callable[[], str], seconds: float = WAIT_SECONDS) -> Answer:
    """Asks five times a second until the answer is true, such as a list with members, and returns it; asserts that it comes in time.

    Args:
        ask: what is asked.
        what: what is waited for. A function is called only for the error, and may say what there was instead.
        seconds: how long to wait.
    """
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what if isinstance(what, str) else what()}"
        time.sleep(0.2)
    return answer
