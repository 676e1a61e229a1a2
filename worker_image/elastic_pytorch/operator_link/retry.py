"""What the operator answers when it refuses a request, and when an agent tries again to reach it."""

import contextlib
import json
import math
import random
import time
from collections.abc import Callable
from email.message import Message

from elastic_pytorch.log import logger

FIRST_RETRY_SECONDS = 0.2
# Longer than another operator takes to become the leader when the leader's node has died.
FIRST_RETRIES_SECONDS = 10.0
LATER_RETRY_SECONDS = 2.0
MAX_RETRY_AFTER_SECONDS = 30.0


class RefusedError(OSError):
    def __init__(self, status: int, reason: str, retry_after: float | None) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.retry_after = retry_after  # seconds; None: not given


def reason_of(answer: bytes, reason: str) -> str:
    """Why the operator refuses, safe to log: what the answer's body says, or else the reason in its head."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return ascii(str(json.loads(answer)["error"])[:500])
    return ascii(reason[:100])


def retry_after(headers: Message) -> float | None:
    """The seconds for which the operator refuses further requests, by the head of its answer; None: not given."""
    return pause_seconds(headers.get("Retry-After"))


def pause_seconds(value: object) -> float | None:
    """How long to wait, within limits; None: the value is no number."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS) if math.isfinite(seconds) else None


class Retry:
    """Logs failures of the stream to the operator, and computes how long to wait before the next try."""

    def __init__(self, quiet: Callable[[], bool]) -> None:
        self.failing = False  # the last try failed
        self.asked = False  # the operator itself asked for the pause
        self._quiet = quiet
        self._failing_since = 0.0
        self._logged = ""

    def succeed(self) -> None:
        if self.failing:
            logger.info("the stream to the operator succeeded again")
        self.failing = False
        self.asked = False
        self._logged = ""

    def fail(self, error: Exception, patience: int) -> float:
        """Takes note that a try has failed; returns the seconds to wait."""
        if not self.failing:
            self._failing_since = time.monotonic()
        self.failing = True
        self.asked = isinstance(error, RefusedError) and error.retry_after is not None
        problem = f"the stream to the operator failed: {type(error).__name__}: {error}"
        if problem != self._logged and not self._quiet():
            self._logged = problem
            logger.warning("%s; training goes on, trying again", problem)
        if isinstance(error, RefusedError) and error.retry_after is not None:
            return error.retry_after
        # At random, so that agents that have failed together do not come again together.
        return self._pause_seconds(error, patience) * random.uniform(0.5, 1.5)

    def _pause_seconds(self, error: Exception, patience: int) -> float:
        if patience > 1:
            return FIRST_RETRY_SECONDS * patience**2  # the operator has more to do than it can
        if isinstance(error, TimeoutError):
            # It has waited enough: the server that did not answer may have died.
            return FIRST_RETRY_SECONDS
        if not isinstance(error, OSError):
            return LATER_RETRY_SECONDS  # it answers, but not sensibly
        first = time.monotonic() - self._failing_since < FIRST_RETRIES_SECONDS
        return FIRST_RETRY_SECONDS if first else LATER_RETRY_SECONDS
