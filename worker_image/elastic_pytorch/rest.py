"""How long background work rests after each piece, to take about a tenth of the time.

Training may use the same disk and network. The shortest of the last three pieces counts, so that a
pause of the node or the server does not count tenfold. Standard library only.
"""

from collections import deque

IDLE_SHARE = 9  # seconds of rest for each second of work
MEASURED = 3  # pieces of which the shortest counts
# After a failure. A request to storage that does not answer takes a minute to fail.
MAX_FAILED_SECONDS = 60.0


class Rest:
    """For pieces of one kind, which are of similar size."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=MEASURED)

    def after(self, seconds: float) -> float:
        self._seconds.append(seconds)
        return IDLE_SHARE * min(self._seconds)

    def after_failure(self, seconds: float) -> float:
        """The failed piece does not count for the next ones."""
        return min(IDLE_SHARE * min([seconds, *self._seconds]), MAX_FAILED_SECONDS)
