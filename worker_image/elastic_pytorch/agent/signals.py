"""The signals that end an agent, and the wait for its workers' last checkpoints."""

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from elastic_pytorch.log import logger
from elastic_pytorch.pod.server import PodServer

HANDLED = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
DISK_SECONDS = 600.0  # the longest wait for the disk, without a signal
MARGIN_SECONDS = 0.5  # of the grace period, for what follows the wait
POLL_SECONDS = 0.1


class Signals:
    """Records the first signal and calls `on_first`; the main thread acts on it where it is safe.

    Torch's own handlers would raise an exception half-way through the start of workers.
    """

    def __init__(self, names: str, on_first: Callable[[], None]) -> None:
        self.received: signal.Signals | None = None
        self.at = 0.0  # by `time.monotonic()`
        found = (getattr(signal, name.strip(), None) for name in names.split(","))
        self._numbers = [
            each
            for each in found
            if isinstance(each, signal.Signals) and each not in (signal.SIGKILL, signal.SIGSTOP)
        ]
        self._on_first = on_first

    def install(self) -> None:
        for number in self._numbers:
            signal.signal(number, self.note)

    def note(self, signum: int, frame: FrameType | None) -> None:
        del frame
        if self.received is None:
            self.at = time.monotonic()
            self.received = signal.Signals(signum)
            self._on_first()


def end_at_once(number: int, _frame: FrameType | None) -> None:
    """The handler while there is nothing to stop or to report."""
    os._exit(128 + number)


def wait_for_disk(
    pod_server: PodServer,
    signals: Signals,
    grace_seconds: float,
    disk_seconds: float = DISK_SECONDS,
) -> bool:
    """Waits for flushes, within the grace period of a signal; returns whether all have ended."""
    since = time.monotonic()
    margin = min(MARGIN_SECONDS, 0.1 * grace_seconds)
    while not pod_server.drain(POLL_SECONDS):
        deadline = since + disk_seconds
        if signals.received is not None:
            deadline = signals.at + grace_seconds - margin
        if time.monotonic() >= deadline:
            logger.warning("end: the last checkpoint is not on the disk, and there is no time left")
            return False
    return True
