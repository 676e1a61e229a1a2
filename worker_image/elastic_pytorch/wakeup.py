"""How a thread waits for a time, a file descriptor or another thread, whichever comes first."""

import contextlib
import os
import select
from collections.abc import Iterable


class Wakeup:
    """A pipe by which threads and signal handlers end another thread's wait.

    A lock would not do: a signal handler runs in the main thread, which may hold that lock.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def ring(self) -> None:
        """Ends the current or the next `wait`. Safe in any thread and in a signal handler."""
        with contextlib.suppress(BlockingIOError):  # a full pipe rings already
            os.write(self._write, b"\0")

    def wait(self, seconds: float, descriptors: Iterable[int] = ()) -> list[int]:
        """Waits for `ring`, a readable descriptor or the time; returns the readable descriptors."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(max(0.0, seconds) * 1000)]
        if self._read in ready:
            ready.remove(self._read)
            self.clear()
        return ready

    def fileno(self) -> int:
        return self._read

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass
