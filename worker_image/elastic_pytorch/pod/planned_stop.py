"""Ends a script before a planned change of its group, or without a next group, as Python would.

`finally` blocks and exit handlers run, and open files are flushed, within `CLEANUP_SECONDS`.
Exceptions and results do not count: the state is saved.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

CLEANUP_SECONDS = 5.0  # for all steps of a script's end


class PlannedStop(BaseException):
    """Not an Exception, so that scripts do not handle it as an error."""


class _ScriptEnd:
    def __init__(self) -> None:
        # Whether the script's runner lets it end as Python would, instead of waiting for SIGKILL.
        self.orderly = False
        self.over = False  # exit handlers run: nothing is left to end
        self._wait: Callable[[], NoReturn] | None = None

    @property
    def begun(self) -> bool:
        return self._wait is not None

    def begin(self, report: Callable[[], None], wait: Callable[[], NoReturn]) -> NoReturn:
        """Ends the script, if this is its main thread; otherwise reports and waits for SIGTERM.

        `report` is called once, in any thread.
        """
        first = threading.Lock()  # never released

        def once() -> None:
            if first.acquire(blocking=False):
                report()

        def end() -> NoReturn:
            once()
            wait()

        if self.over:
            end()
        if not self.orderly or threading.current_thread() is not threading.main_thread():
            with self.at_sigterm():
                end()
        self._wait = end
        timer = threading.Timer(CLEANUP_SECONDS, once)
        timer.daemon = True
        timer.start()
        raise PlannedStop("the group is changed, and the script will be started again")

    @contextlib.contextmanager
    def at_sigterm(self) -> Iterator[None]:
        """Has SIGTERM end the script without its own handler, which would only save again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._end_now)
        yield
        # Not if the script ends.
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)

    def _end_now(self, number: int, _: object) -> NoReturn:
        # A shell in front of the script may pass on a signal that the script already has.
        signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, CLEANUP_SECONDS)
        if self.orderly:
            raise PlannedStop("no group needs this process any more")
        raise SystemExit(128 + number)

    def complete(self) -> None:
        """Waits after a planned stop, when all of the exit is done, for the agent's SIGTERM."""
        if self._wait is not None:
            self._wait()


script_end = _ScriptEnd()
