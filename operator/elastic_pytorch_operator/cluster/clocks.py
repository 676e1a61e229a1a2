"""The operator's clocks: seconds since this machine was started, and the time of day.

If the clock of a new leader's machine were a day ahead, jobs would exceed `activeDeadlineSeconds`
at once. So the API server's time counts where the two differ by more than a few seconds.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

logger = logging.getLogger(__name__)

MAX_DIFFERENCE_SECONDS = 10.0
BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the first is of Linux


def boot_seconds() -> float:
    """Unlike the monotonic clock, it goes on while Linux is suspended."""
    return time.clock_gettime(BOOT_CLOCK)


class ServerClock:
    """The API server's time of day, by the `Date` of its last answer (RFC 9110), to the second."""

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        self._clock = clock
        self._date = ""
        self._noted_at = 0.0

    def note(self, date: str) -> None:
        if date:
            self._date, self._noted_at = date, self._clock()

    def time(self) -> datetime | None:
        try:
            date = parsedate_to_datetime(self._date)
        except ValueError:
            return None
        return date.astimezone(UTC) + timedelta(seconds=self._clock() - self._noted_at)


class TimeOfDay:
    def __init__(
        self,
        server_time: Callable[[], datetime | None] = lambda: None,
        own_time: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._server_time = server_time
        self._own_time = own_time
        self._differed = False

    def __call__(self) -> datetime:
        own, server = self._own_time(), self._server_time()
        ahead = (own - server).total_seconds() if server else 0.0
        differs = abs(ahead) > MAX_DIFFERENCE_SECONDS
        if differs and not self._differed:
            side = "ahead of" if ahead > 0 else "behind"
            logger.warning(
                "this machine's clock is %.0f s %s the API server's, whose time counts from now on",
                abs(ahead),
                side,
            )
        self._differed = differs
        return server if server and differs else own
