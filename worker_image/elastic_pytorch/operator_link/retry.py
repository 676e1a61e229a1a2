"""When an agent tries again to reach the operator."""

import random
import time
from collections.abc import Callable

from elastic_pytorch.log import logger
from elastic_pytorch.operator_link.refusal import RefusedError

FIRST_RETRY_SECONDS = 0.2
FIRST_RETRIES_SECONDS = 10.0  # longer than another operator takes to become the leader when the leader's node has died
LATER_RETRY_SECONDS = 2.0


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
            return FIRST_RETRY_SECONDS  # it has waited enough: the server that did not answer may have died
        if not isinstance(error, OSError):
            return LATER_RETRY_SECONDS  # it answers, but not sensibly
        first = time.monotonic() - self._failing_since < FIRST_RETRIES_SECONDS
        return FIRST_RETRY_SECONDS if first else LATER_RETRY_SECONDS
