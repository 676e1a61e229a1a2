"""Finds the failure in a pod that has caused the others."""

import time
from collections.abc import Callable

from elastic_pytorch.failures.failure import Failure
from elastic_pytorch.failures.last_words import DEVICE_FAULT
from elastic_pytorch.failures.peer_errors import is_echo

ECHO_WAIT_SECONDS = 0.05  # the agent may see an echo before the exit that causes it


class LocalFailures:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: dict[int, Failure] = {}
        self._until: float | None = None

    def __contains__(self, local_rank: int) -> bool:
        return local_rank in self._found

    def add(self, failure: Failure) -> None:
        """Only the first failure of a worker counts."""
        if self._until is None:
            self._until = self._clock() + ECHO_WAIT_SECONDS
        self._found.setdefault(failure.local_rank, failure)
        if not _is_echo(failure):
            self._until = self._clock()

    def seconds_left(self) -> float | None:
        """How long to wait for the exits of others; None: no worker has failed."""
        return None if self._until is None else max(0.0, self._until - self._clock())

    def in_order(self) -> list[Failure]:
        """The cause comes first: the earliest failure that is no echo of a peer's, if any."""
        return sorted(
            self._found.values(),
            key=lambda failure: (_is_echo(failure), failure.observed, failure.local_rank),
        )


def _is_echo(failure: Failure) -> bool:
    return failure.exception != DEVICE_FAULT and is_echo(
        exit_code=failure.exit_code,
        signal=failure.signal,
        exception=failure.exception,
        message=failure.message,
        traceback=failure.traceback,
    )
