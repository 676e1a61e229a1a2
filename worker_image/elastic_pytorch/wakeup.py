"""How threads wait for each other, and how long background work rests. Standard library only."""

import contextlib
import os
import select
from collections import deque
from collections.abc import Iterable

IDLE_SHARE = 9  # seconds of rest for each second of work
MEASURED = 3  # pieces of which the shortest counts
# After a failure. A request to storage that does not answer takes a minute to fail.
MAX_FAILED_SECONDS = 60.0


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


class Rest:
    """How long background work rests after each piece, to take about a tenth of the time.

    Training may use the same disk and network. The pieces are of one kind, and of similar size. The
    shortest of the last three counts: a pause of the node or the server does not count tenfold.
    """

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=MEASURED)

    def after(self, seconds: float) -> float:
        self._seconds.append(seconds)
        return IDLE_SHARE * min(self._seconds)

    def after_failure(self, seconds: float) -> float:
        """The failed piece does not count for the next ones."""
        return min(IDLE_SHARE * min([seconds, *self._seconds]), MAX_FAILED_SECONDS)
