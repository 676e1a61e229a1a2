"""The rows of all jobs, kept up to date in the background for the pages that are open."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic_pytorch_client.job_cache import JobCache
from elastic_pytorch_client.page.rows import row_of
from elastic_pytorch_client.reading.job_view import JobView

REFRESH_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Changes:
    rows: Mapping[str, str]  # new and changed ones as JSON, by the job's UID
    removed: tuple[str, ...]  # UIDs
    trouble: str  # why what is known may be old; empty: it is not


@dataclass
class LiveJobs:
    cache: JobCache
    _views: dict[str, JobView] = field(default_factory=dict)
    _rows: dict[str, str] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Looks once, and from then on in the background.

        Raises:
            EpjError: the jobs cannot be read.
        """
        self.cache.start()
        self._take()
        threading.Thread(target=self._run, name="live-jobs", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self.cache.stop()
        with self._changed:
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def jobs(self) -> list[JobView]:
        with self._changed:
            return list(self._views.values())

    def changes(self, shown: Mapping[str, str], trouble: str, wait_seconds: float) -> Changes | None:
        """What differs from what a page shows, as soon as anything does; None if nothing has in time."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self._differs(shown, trouble), wait_seconds)
            if not self._differs(shown, trouble):
                return None
            rows = {uid: row for uid, row in self._rows.items() if shown.get(uid) != row}
            return Changes(rows, tuple(uid for uid in shown if uid not in self._rows), self.cache.trouble)

    def _differs(self, shown: Mapping[str, str], trouble: str) -> bool:
        return trouble != self.cache.trouble or shown != self._rows

    def _run(self) -> None:
        while not self._stopped.wait(REFRESH_SECONDS):
            self._take()

    def _take(self) -> None:
        views = {job.uid: job for job in self.cache.jobs}
        with self._changed:
            for uid in [uid for uid in self._rows if uid not in views]:
                del self._rows[uid]
            for uid, job in views.items():
                if self._views.get(uid) is not job:
                    self._rows[uid] = json.dumps(row_of(job), allow_nan=False)
            self._views = views
            self._changed.notify_all()
