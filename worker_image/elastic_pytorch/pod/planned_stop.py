"""How a script ends whose group is changed on purpose, or that no group wants any more: as Python ends one.

`finally` blocks and exit handlers run, and open files are flushed, all within `CLEANUP_SECONDS`.
Before a change, only then is the agent told that the worker has stopped. Nothing that the script
raises or returns on its way out counts: its state was saved before.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

CLEANUP_SECONDS = 5.0  # for all that a script does at its end


class PlannedStop(BaseException):
    """Raised in the main thread of a script that is to end.

    Not an Exception, so that scripts do not handle it as an error.
    """


class _ScriptEnd:
    def __init__(self) -> None:
        # Whether what runs the script lets it end as Python would; if not, it waits to be killed.
        self.orderly = False
        self.over = False  # exit handlers run: there is nothing left that would have to be ended
        self._wait: Callable[[], NoReturn] | None = None

    @property
    def begun(self) -> bool:
        return self._wait is not None

    def begin(self, report: Callable[[], None], wait: Callable[[], NoReturn]) -> NoReturn:
        """Ends the script, if this is its main thread.

        In others, and where nothing carries out the end, reports and waits for SIGTERM.

        `report` is called once, by any thread, and tells the agent that this worker has stopped.
        """
        once = _Once(report)
        if self.over:
            once()
            wait()
        if not self.orderly or threading.current_thread() is not threading.main_thread():
            with self.at_sigterm():
                once()
                wait()

        def end() -> NoReturn:
            once()
            wait()

        self._wait = end
        timer = threading.Timer(CLEANUP_SECONDS, once)
        timer.daemon = True
        timer.start()
        raise PlannedStop("the group is changed, and the script will be started again")

    @contextlib.contextmanager
    def at_sigterm(self) -> Iterator[None]:
        """Has SIGTERM end the script, instead of the script's own handler, which would only save what is saved already.

        It is for a process that waits for its next group, and may never get one. The kernel kills a
        process whose end takes longer than `CLEANUP_SECONDS`, wherever it hangs. In another thread
        than the main one nothing is changed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._end_now)
        yield
        # Not while the script ends.
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)

    def _end_now(self, number: int, _: object) -> NoReturn:
        # A shell before the script may pass on what the script has got already.
        signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, CLEANUP_SECONDS)
        if self.orderly:
            raise PlannedStop("no group needs this process any more")
        raise SystemExit(128 + number)

    def complete(self) -> None:
        """Waits until the agent ends this process, if the script was told to stop.

        To be called when all steps of its exit are done.
        """
        if self._wait is not None:
            self._wait()


class _Once:
    def __init__(self, function: Callable[[], None]) -> None:
        self._function, self._lock, self._called = function, threading.Lock(), False

    def __call__(self) -> None:
        with self._lock:
            if not self._called:
                self._called = True
                self._function()


script_end = _ScriptEnd()
