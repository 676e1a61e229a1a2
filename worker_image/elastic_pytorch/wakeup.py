"""How a thread of the agent waits: for a time, a file descriptor or another thread, whichever comes first."""

import contextlib
import os
import select
from collections.abc import Iterable


class Wakeup:
    """A bell that threads and signal handlers may ring, built on a pipe to be waited for together with other file descriptors.

    A lock would not do: a signal handler runs in the main thread, perhaps while that thread holds
    the lock.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def ring(self) -> None:
        """Ends the current or the next `wait`.

        May be called from any thread and from a signal handler.
        """
        with contextlib.suppress(BlockingIOError):  # a full pipe rings already
            os.write(self._write, b"\0")

    def wait(self, seconds: float, descriptors: Iterable[int] = ()) -> list[int]:
        """Waits until the bell is rung, one of the descriptors is readable, or the time is over.

        Returns:
            The descriptors that are readable.
        """
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)]
        if self._read in ready:
            ready.remove(self._read)
            with contextlib.suppress(BlockingIOError):
                while os.read(self._read, 4096):
                    pass
        return ready
