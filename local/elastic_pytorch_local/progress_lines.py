"""The lines of local mode while a job trains: steps, size, changes, a standstill. Pure."""

from collections.abc import Sequence

from elastic_pytorch_client.reading.history import HistoryEntry
from elastic_pytorch_client.reading.job_view import RUNNING, JobView, Progress

LINE_SECONDS = 10.0
STANDSTILL_SECONDS = 60.0
STANDSTILL = (
    "A hang shows with `py-spy dump --pid {pid}`, and spec.progressDeadlineSeconds ends one. "
    "Steps are seen if the script prints each in a line with its loss, or reports it with "
    "elastic_pytorch.report(step=10, loss=2.31)."
)


def headline(job: JobView, progress: Progress, pace: float | None) -> str:
    step = "no step yet" if progress.step is None else f"step {progress.step}"
    parts = [f"{step}/{progress.total}" if progress.total else step]
    parts += [] if progress.loss is None else [f"loss {progress.loss:.3f}"]
    size, does = job.size or job.ready, "train" if job.size else "are ready"
    parts += [f"{size} of {job.wanted} workers {does}"]
    parts += [f"round {job.round}", *([f"{pace:.1f} steps/s"] if pace else [])]
    return f"{job.state}: {', '.join(parts)}"


def describe_change(entry: HistoryEntry) -> str:
    """The cost of a change; without reported steps, the time without processes."""
    size = f"{entry.before} -> {entry.workers}" if entry.before else f"{entry.workers}"
    text = f"round {entry.round}, {entry.cause}, {size} workers:"
    took, lost = f"{entry.seconds or 0.0:.1f} s", entry.steps_lost
    if lost is None:
        return f"{text} the processes ran after {took}"
    return f"{text} training stood still {took}, {lost} step{'' if lost == 1 else 's'} repeated"


class ProgressLines:
    def __init__(self, *, changes: bool = True) -> None:
        self._shows_changes = changes
        self._said = ("", 0, 0)  # state, round and size in the last line
        self._said_at = self._stepped_at = float("-inf")
        self._step: int | None = None
        self._changed = 0  # the newest round whose cost was shown
        self._standstill_shown = False

    def due(
        self, job: JobView, progress: Progress, pace: float | None, pids: Sequence[int], now: float
    ) -> list[str]:
        if not job.name:  # not seen yet
            return []
        news = [entry for entry in job.recent_interruptions if entry.round > self._changed]
        lines = [describe_change(entry) for entry in news] if self._shows_changes else []
        self._changed = max([self._changed, *(entry.round for entry in job.recent_interruptions)])
        here = (job.state, job.round, job.size or job.ready)
        stepped = progress.step != self._step
        if stepped or here != self._said:
            self._stepped_at, self._step, self._standstill_shown = now, progress.step, False
        if here != self._said or (stepped and now - self._said_at >= LINE_SECONDS):
            self._said, self._said_at = here, now
            lines.append(headline(job, progress, pace))
        still = job.state == RUNNING and now - self._stepped_at >= STANDSTILL_SECONDS
        if still and not self._standstill_shown:
            self._standstill_shown = True
            since = "" if progress.step is None else f" after step {progress.step}"
            how = STANDSTILL.format(pid=pids[0] if pids else "PID")
            lines.append(f"No step for a minute{since}. {how}")
        return lines
