"""The operator's refusals, and the pauses before an agent tries again."""

import contextlib
import json
import math
import random
import time
from collections.abc import Callable

from elastic_pytorch.log import logger

FIRST_RETRY_SECONDS = 0.2
# Longer than the election of another leader takes when the leader's node has died.
FIRST_RETRIES_SECONDS = 10.0
LATER_RETRY_SECONDS = 2.0
MAX_RETRY_AFTER_SECONDS = 30.0


class RefusedError(OSError):
    def __init__(self, status: int, reason: str, retry_after: float | None) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.retry_after = retry_after  # seconds


def reason_of(answer: bytes, reason: str) -> str:
    """Why the operator refuses, from the answer's body or status line, safe to log."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return ascii(str(json.loads(answer)["error"])[:500])
    return ascii(reason[:100])


def pause_seconds(value: object) -> float | None:
    """Limits a pause; None: the value is no number."""
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS) if math.isfinite(seconds) else None


class Retry:
    def __init__(self, quiet: Callable[[], bool]) -> None:
        self.failing = False  # the last try failed
        self.asked = False  # the operator has asked for the pause
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
        """Returns the seconds to wait."""
        if not self.failing:
            self._failing_since = time.monotonic()
        self.failing = True
        pause = error.retry_after if isinstance(error, RefusedError) else None
        self.asked = pause is not None
        problem = f"the stream to the operator failed: {type(error).__name__}: {error}"
        if problem != self._logged and not self._quiet():
            self._logged = problem
            logger.warning("%s; training goes on, trying again", problem)
        if pause is not None:
            return pause
        # At random, so that agents that failed together do not return together.
        return self._pause_seconds(error, patience) * random.uniform(0.5, 1.5)

    def _pause_seconds(self, error: Exception, patience: int) -> float:
        if patience > 1:
            return FIRST_RETRY_SECONDS * patience**2  # the operator is too busy
        if isinstance(error, TimeoutError):
            # The try has taken long enough: the server that did not answer may have died.
            return FIRST_RETRY_SECONDS
        if not isinstance(error, OSError):
            return LATER_RETRY_SECONDS  # the answer is malformed
        first = time.monotonic() - self._failing_since < FIRST_RETRIES_SECONDS
        return FIRST_RETRY_SECONDS if first else LATER_RETRY_SECONDS
