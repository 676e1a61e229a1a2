"""SIGTERM, and the other signals that end an agent."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType

HANDLED = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"


class Signals:
    """Records the first signal; the main thread acts on it where that is safe.

    Torch's own handlers raise an exception wherever the main thread happens to be, maybe half-way through starting workers. The
    handler calls `on_first`.
    """

    def __init__(self, names: str, on_first: Callable[[], None]) -> None:
        self.received: signal.Signals | None = None
        self.at = 0.0  # by `time.monotonic()`
        self._numbers = list(_numbers(names.split(",")))
        self._on_first = on_first

    def install(self) -> None:
        """Installs the handlers. To be called from the main thread, and again whenever torch has installed its own."""
        for number in self._numbers:
            signal.signal(number, self.note)

    def note(self, signum: int, frame: FrameType | None) -> None:
        del frame
        if self.received is None:
            self.at = time.monotonic()
            self.received = signal.Signals(signum)
            self._on_first()


def end_at_once(number: int, _frame: FrameType | None) -> None:
    """The handler while there is nothing yet to stop or to report."""
    os._exit(128 + number)


def _numbers(names: Iterable[str]) -> Iterable[signal.Signals]:
    for name in names:
        number = getattr(signal, name.strip(), None)
        if isinstance(number, signal.Signals) and number not in (signal.SIGKILL, signal.SIGSTOP):
            yield number
