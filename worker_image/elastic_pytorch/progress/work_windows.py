"""How long each process works in a step, in windows of some seconds."""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

WINDOW_SECONDS = 5.0
WINDOW_REPORTS = 5  # of a process: their median hides an outlier
MAX_REPORTS = 1000  # of a process in a window


@dataclass(frozen=True, slots=True)
class Work:
    windows: int  # that are over in the round
    work_seconds: tuple[float | None, ...]  # medians by local rank; None: too few reports
    step_seconds: float  # median of all reports

    def to_json(self) -> dict[str, object]:
        seconds = [None if each is None else round(each, 6) for each in self.work_seconds]
        return {
            "workWindows": self.windows,
            "workSeconds": seconds,
            "stepSeconds": round(self.step_seconds, 6),
        }


class WorkWindows:
    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window_seconds = window_seconds
        self._windows = 0
        self._begun_at: float | None = None
        self._work: defaultdict[int, list[float]] = defaultdict(list)
        self._steps: list[float] = []

    def add(
        self, local_rank: int, work_seconds: float, step_seconds: float, now: float
    ) -> Work | None:
        """Takes `now` in monotonic seconds; returns the window that the report ends."""
        if self._begun_at is None:
            self._begun_at = now
        work = self._work[local_rank]
        if len(work) < MAX_REPORTS:
            work.append(work_seconds)
            self._steps.append(step_seconds)
        if now - self._begun_at < self._window_seconds or len(work) < WINDOW_REPORTS:
            return None
        self._windows += 1
        seconds = tuple(self._median(rank) for rank in range(max(self._work) + 1))
        ended = Work(self._windows, seconds, median(self._steps))
        self._begun_at = now
        self._work.clear()
        self._steps.clear()
        return ended

    def _median(self, local_rank: int) -> float | None:
        # The ranks report one after the other, so the window may lack a rank's last step.
        reports = self._work.get(local_rank, ())
        return median(reports) if len(reports) >= WINDOW_REPORTS - 1 else None
