"""Jobs as they are now, kept up to date in the background."""

import threading
from dataclasses import dataclass, field

from elastic_pytorch_client.cluster import ClusterReader, Object
from elastic_pytorch_client.errors import EpjError
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_client.watch import PAUSE_SECONDS, RETRY_SECONDS


@dataclass
class JobCache:
    cluster: ClusterReader
    namespace: str | None  # None: all
    trouble: str = ""  # why what is known may be old; empty: it is not
    _jobs: dict[str, JobView] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Looks once, and from then on in the background.

        Raises:
            EpjError: the jobs cannot be read.
        """
        self._look()
        threading.Thread(target=self._run, name="job-cache", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    @property
    def jobs(self) -> list[JobView]:
        with self._lock:
            return list(self._jobs.values())

    def _look(self) -> None:
        """Asks for all: a watch does not tell what was deleted before it began."""
        found = self.cluster.list_jobs(self.namespace)
        with self._lock:
            self._jobs = {_uid(job): view_job(job) for job in found}

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                for change, job in self.cluster.watch_jobs(self.namespace):
                    self.trouble = ""
                    with self._lock:
                        if change == "DELETED":
                            self._jobs.pop(_uid(job), None)
                        else:
                            self._jobs[_uid(job)] = view_job(job)
                    if self._stopped.is_set():
                        return
                self._look()
                self._stopped.wait(PAUSE_SECONDS)
            except EpjError as error:
                self.trouble = str(error)
                self._stopped.wait(RETRY_SECONDS)


def _uid(job: Object) -> str:
    return str(job["metadata"]["uid"])
