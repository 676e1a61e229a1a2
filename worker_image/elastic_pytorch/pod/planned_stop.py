"""How a script ends whose group is changed on purpose: as Python ends one, before its agent starts it again.

`finally` blocks and exit handlers run, and open files are flushed, all within `EXIT_SECONDS`. Only then is the agent told that the worker
has stopped. Nothing that the script raises or returns on its way out counts: its state was saved before.
"""

import threading
from collections.abc import Callable
from typing import NoReturn

EXIT_SECONDS = 5.0  # for all that a script does at its end


class PlannedStop(BaseException):
    """Raised in the main thread of a script that is to end. Not an Exception, so that scripts do not handle it as an error."""


class _ScriptEnd:
    """The end of this process's script.

    Attributes:
        orderly: whether what runs the script lets it end as Python would; if not, it waits to be killed where it stops.
    """

    def __init__(self) -> None:
        self.orderly = False
        self._wait: Callable[[], NoReturn] | None = None

    def begin(self, report: Callable[[], None], wait: Callable[[], NoReturn]) -> NoReturn:
        """Ends the script, if this is its main thread; in others, and where nothing carries out the end, reports and waits.

        Args:
            report: tells the agent that this worker has stopped; called once, by any thread.
            wait: waits until the agent ends this process.
        """
        once = _Once(report)
        if not self.orderly or threading.current_thread() is not threading.main_thread():
            once()
            wait()

        def end() -> NoReturn:
            once()
            wait()

        self._wait = end
        timer = threading.Timer(EXIT_SECONDS, once)
        timer.daemon = True
        timer.start()
        raise PlannedStop("the group is changed, and the script will be started again")

    def complete(self) -> None:
        """Waits until the agent ends this process, if the script was told to stop. To be called when all steps of its exit are done."""
        if self._wait is not None:
            self._wait()


class _Once:
    """A function that is called once, however many threads ask for it."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function, self._lock, self._called = function, threading.Lock(), False

    def __call__(self) -> None:
        with self._lock:
            if not self._called:
                self._called = True
                self._function()


script_end = _ScriptEnd()
