"""Waits for what must come, for longer than a slow and busy machine needs."""

import time
from collections.abc import Callable
from typing import TypeVar

WAIT_SECONDS = 180.0
MAX_PAUSE_SECONDS = 0.2

Answer = TypeVar("Answer")


def until(
    ask: Callable[[], Answer],
    what: str | Callable[[], str] = "this",
    seconds: float = WAIT_SECONDS,
    pause_seconds: float = 0.005,
) -> Answer:
    """Asks until the answer is true, and returns it; asserts that it comes in time.

    Args:
        ask: what is asked.
        what: what is waited for. A function is called only for the error, and may say what there
            was instead.
        seconds: how long to wait.
        pause_seconds: between two requests, at first. It grows to a tenth of the time so far, and
            to a fifth of a second.
    """
    began = time.monotonic()
    while not (answer := ask()):
        waited = time.monotonic() - began
        assert waited < seconds, (
            f"waited {seconds:.0f} s for {what if isinstance(what, str) else what()}"
        )
        time.sleep(min(MAX_PAUSE_SECONDS, max(pause_seconds, waited / 10)))
    return answer
