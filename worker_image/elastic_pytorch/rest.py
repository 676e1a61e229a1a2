"""How long work beside the training rests after each piece, so that it takes about a tenth of the time. Standard library only.

Training may read its data through the same disk and network. The shortest of the last three pieces
counts: a node or a server that stood still for a minute must not put the next piece off by ten.
"""

from collections import deque

IDLE_SHARE = 9  # seconds of rest for each second of work
MEASURED = 3  # pieces of which the shortest counts
# Of rest after a failure: a request to storage that is away takes a minute to fail.
MAX_FAILED_SECONDS = 60.0


class Rest:
    """Measures the pieces of one kind of work: those of another size say nothing about them."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=MEASURED)

    def after(self, seconds: float) -> float:
        self._seconds.append(seconds)
        return IDLE_SHARE * min(self._seconds)

    def after_failure(self, seconds: float) -> float:
        """Returns the seconds to rest after a piece that has failed, and says nothing about the next one."""
        return min(IDLE_SHARE * min([seconds, *self._seconds]), MAX_FAILED_SECONDS)
