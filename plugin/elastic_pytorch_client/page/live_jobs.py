"""The rows of all jobs, updated in the background for the open pages."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from elastic_pytorch_client.cluster import ClusterReader, Object
from elastic_pytorch_client.errors import EpjError
from elastic_pytorch_client.page.rows import row_of
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_client.watch import PAUSE_SECONDS, RETRY_SECONDS

REFRESH_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Changes:
    rows: Mapping[str, str]  # new and changed ones as JSON, by the job's UID
    removed: tuple[str, ...]  # UIDs
    trouble: str  # why the rows may be old; empty: they are not


@dataclass
class LiveJobs:
    """The jobs of a namespace, as a thread watches them, and their rows, every half second."""

    cluster: ClusterReader
    namespace: str | None  # None: all
    trouble: str = ""  # why the rows may be old
    _known: dict[str, JobView] = field(default_factory=dict)
    _views: dict[str, JobView] = field(default_factory=dict)  # in the rows
    _rows: dict[str, str] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Raises EpjError if the jobs cannot be read at first."""
        self._look()
        self._show()
        for run in (self._watch, self._refresh):
            threading.Thread(target=run, name="live-jobs", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def jobs(self) -> list[JobView]:
        with self._changed:
            return list(self._views.values())

    def changes(
        self, shown: Mapping[str, str], trouble: str, wait_seconds: float
    ) -> Changes | None:
        """The differences from a page's rows, as soon as there are any; None: none in time."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.stopped or self._differs(shown, trouble), wait_seconds
            )
            if not self._differs(shown, trouble):
                return None
            rows = {uid: row for uid, row in self._rows.items() if shown.get(uid) != row}
            return Changes(rows, tuple(uid for uid in shown if uid not in self._rows), self.trouble)

    def _differs(self, shown: Mapping[str, str], trouble: str) -> bool:
        return trouble != self.trouble or shown != self._rows

    def _look(self) -> None:
        """Lists all, as a watch does not report earlier deletions."""
        found = self.cluster.list_jobs(self.namespace)
        with self._changed:
            self._known = {_uid(job): view_job(job) for job in found}

    def _watch(self) -> None:
        while not self.stopped:
            try:
                if self.trouble:
                    self._look()
                    self.trouble = ""
                for change, job in self.cluster.watch_jobs(self.namespace):
                    with self._changed:
                        if change == "DELETED":
                            self._known.pop(_uid(job), None)
                        else:
                            self._known[_uid(job)] = view_job(job)
                    if self.stopped:
                        return
                self._look()
                self._stopped.wait(PAUSE_SECONDS)
            except EpjError as error:
                self.trouble = str(error)
                self._stopped.wait(RETRY_SECONDS)

    def _refresh(self) -> None:
        while not self._stopped.wait(REFRESH_SECONDS):
            self._show()

    def _show(self) -> None:
        with self._changed:
            known = dict(self._known)
            for uid in [uid for uid in self._rows if uid not in known]:
                del self._rows[uid]
            for uid, job in known.items():
                if self._views.get(uid) is not job:
                    self._rows[uid] = json.dumps(row_of(job), allow_nan=False)
            self._views = known
            self._changed.notify_all()


def _uid(job: Object) -> str:
    return str(job["metadata"]["uid"])
