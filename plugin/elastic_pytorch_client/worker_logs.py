"""The logs of a job's workers, each line with its worker, across replaced pods."""

import queue
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from elastic_pytorch_client.cluster import ClusterReader
from elastic_pytorch_client.errors import EpjError, NoSuchJob, NotAllowed, NotFound, Refused
from elastic_pytorch_client.reading.job_view import JobView, Worker, view_job
from elastic_pytorch_client.reading.pods.workers import add_pods

REFRESH_SECONDS = 1.0
MAX_WAITING_LINES = 10_000
FINAL_LINES_SECONDS = 3.0  # for lines of pods that end with the job
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*")


@dataclass(frozen=True, slots=True)
class Choice:
    """Whose logs; by default those of all workers."""

    ranks: frozenset[int] = frozenset()
    indexes: frozenset[int] = frozenset()

    def of(self, job: JobView) -> list[Worker]:
        ordered = sorted(job.workers, key=lambda w: (w.rank is None, w.rank or 0, w.index, w.name))
        if not self.ranks and not self.indexes:
            return ordered
        return [w for w in ordered if w.rank in self.ranks or w.index in self.indexes]


def find_workers(cluster: ClusterReader, job: JobView, choice: Choice) -> JobView:
    """A job with all its chosen workers, by their pods if the status does not list them."""
    indexes = choice.indexes - {worker.index for worker in job.workers}
    everyone = not choice.ranks and not choice.indexes
    if not job.unlisted or not (indexes or everyone):
        return job
    return add_pods(job, cluster.list_pods(job.namespace, job.name, indexes))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a worker's log.

    Attributes:
        worker: the worker that has written it.
        at: its time in RFC 3339; empty if it has none.
        text: the line, without its end.
    """

    worker: Worker
    at: str
    text: str


def read_logs(
    cluster: ClusterReader, job: JobView, choice: Choice, *, tail_lines: int | None = None
) -> Iterator[Line]:
    for worker in choice.of(find_workers(cluster, job, choice)):
        try:
            for line in cluster.pod_log(job.namespace, worker.name, tail_lines=tail_lines):
                yield _line(worker, line)
        except (NotFound, Refused):  # gone, or not started yet
            continue


def follow_logs(
    cluster: ClusterReader,
    namespace: str,
    name: str,
    choice: Choice,
    *,
    tail_lines: int | None = None,
) -> Iterator[Line]:
    """The chosen workers' lines as they come, also of replacements, until the job's end.

    Raises:
        NotAllowed: the user may not read logs.
        EpjError: the job cannot be read at first. Later, it is tried again.
    """
    readers = _LogReaders(cluster, namespace, tail_lines)
    job: JobView | None = view_job(cluster.get_job(namespace, name))
    try:
        while job is not None:
            job = find_workers(cluster, job, choice)
            readers.read(choice.of(job), job)
            seconds = FINAL_LINES_SECONDS if job.ended else REFRESH_SECONDS
            yield from readers.lines(seconds, until_silent=job.ended)
            if job.ended:
                return
            try:
                job = view_job(cluster.get_job(namespace, name))
            except NoSuchJob:
                job = None
            except EpjError:
                continue
    finally:
        readers.stop()


@dataclass
class _LogReaders:
    cluster: ClusterReader
    namespace: str
    tail_lines: int | None
    _queue: "queue.Queue[tuple[str, str | NotAllowed]]" = field(
        default_factory=lambda: queue.Queue(MAX_WAITING_LINES)
    )
    _readers: dict[str, threading.Thread] = field(default_factory=dict)
    _last: dict[str, str] = field(default_factory=dict)  # the newest timestamp of each pod
    _chosen: dict[str, Worker] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)  # earlier pods of the job
    _stopped: threading.Event = field(default_factory=threading.Event)

    def read(self, chosen: list[Worker], job: JobView) -> None:
        """Reads chosen workers that are not read yet, or whose connection has ended.

        A worker that has left the group is still read for its final lines, unless its rank changed.
        """
        moved = {w.name for w in job.workers if w.rank is not None} - {w.name for w in chosen}
        stay = {name: worker for name, worker in self._chosen.items() if name not in moved}
        self._chosen = stay | {worker.name: worker for worker in chosen}
        for worker in chosen:
            if worker.name in self._seen and worker.name not in self._last:
                # The lines of its other rank do not count.
                self._last[worker.name] = max(self._last.values(), default="")
            reader = self._readers.get(worker.name)
            if reader is None or not reader.is_alive():
                self._readers[worker.name] = threading.Thread(
                    target=self._read, args=(worker.name, self.tail_lines), daemon=True
                )
                self._readers[worker.name].start()
        self._seen |= {worker.name for worker in job.workers}
        self.tail_lines = None  # later pods are read from their begin

    def stop(self) -> None:
        self._stopped.set()

    def lines(self, seconds: float, *, until_silent: bool) -> Iterator[Line]:
        """The lines of the next seconds; it ends early if no pod logs any more."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            alive = (reader for reader in self._readers.values() if reader.is_alive())
            if until_silent and not any(alive) and self._queue.empty():
                return
            try:
                pod, text = self._queue.get(timeout=min(left, 0.1))
            except queue.Empty:
                continue
            if isinstance(text, NotAllowed):
                raise text
            if pod in self._chosen:
                yield _line(self._chosen[pod], text)

    def _read(self, pod: str, tail_lines: int | None) -> None:
        before = self._last.get(pod, "")
        since = _to_the_second(before) if before else None
        try:
            follow = self.cluster.pod_log(
                self.namespace, pod, follow=True, tail_lines=tail_lines, since=since
            )
            for line in follow:
                stamp, _ = _parts(line)
                if before and stamp <= before:  # `since` is exact to the second
                    continue
                self._last[pod] = stamp or self._last.get(pod, "")
                if not self._put(pod, line):
                    return
        except NotAllowed as error:
            self._put(pod, error)
        except EpjError:  # not started yet, or gone
            return

    def _put(self, pod: str, line: str | NotAllowed) -> bool:
        """Waits for room; false if no reader is left."""
        while not self._stopped.is_set():
            try:
                self._queue.put((pod, line), timeout=1)
                return True
            except queue.Full:
                continue
        return False


def _to_the_second(stamp: str) -> str:
    return stamp.partition(".")[0].rstrip("Z") + "Z"


def _parts(line: str) -> tuple[str, str]:
    """The time of a line, and the rest; a kubelet's own remark has no time."""
    stamp, _, text = line.partition(" ")
    return (stamp, text) if _STAMP.fullmatch(stamp) else ("", line)


def _line(worker: Worker, line: str) -> Line:
    return Line(worker, *_parts(line))
