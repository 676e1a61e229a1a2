"""The page of `kubectl epj ui` on a cluster in memory, with the client's server."""

import contextlib
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime

from elastic_pytorch_client.cluster.interface import WATCH_SECONDS, Object
from elastic_pytorch_client.errors import NoSuchJob, NotFound
from elastic_pytorch_client.page.live_jobs import LiveJobs
from elastic_pytorch_client.page.server import PageServer
from elastic_pytorch_client.verbs.context import time_of_day
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.times import write_time

from elastic_pytorch_local.cluster.in_memory import FakeCluster

KINDS = (names.KIND, "Pod", "Node")
Change = tuple[str, Object]


class MemoryReader:
    """The client's `ClusterReader` of a cluster in memory, for threads other than the cluster's.

    The lines of each pod begin with an RFC 3339 timestamp.
    """

    namespace = "default"

    def __init__(
        self,
        cluster: FakeCluster,
        logs: Mapping[str, Sequence[str]],
        now: Callable[[], datetime] = time_of_day,
    ) -> None:
        self._events, self._logs, self._now = cluster.events, logs, now
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._watches: list[queue.SimpleQueue[Change | None]] = []
        self._lock = threading.Lock()
        self._stopped = False
        cluster.watch(self._take)
        cluster.show_all(self._take)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for each in self._watches:
                each.put(None)

    def get_job(self, namespace: str, name: str) -> Object:
        with self._lock:
            found = self._objects.get((names.KIND, namespace, name))
        if found is None:
            raise NoSuchJob(f'there is no {names.KIND} "{name}" in namespace "{namespace}"')
        return found

    def list_jobs(self, namespace: str | None) -> list[Object]:
        return self._all(names.KIND, namespace)

    def watch_jobs(
        self, namespace: str | None, name: str | None = None, *, seconds: int = WATCH_SECONDS
    ) -> Iterator[Change]:
        """Yields changes until the reader is stopped, whatever the seconds."""
        changes: queue.SimpleQueue[Change | None] = queue.SimpleQueue()
        with self._lock:
            if self._stopped:
                return
            self._watches.append(changes)
        try:
            for job in self.list_jobs(namespace):
                changes.put(("ADDED", job))
            for change in iter(changes.get, None):
                metadata = change[1]["metadata"]
                if namespace in (None, metadata["namespace"]) and name in (None, metadata["name"]):
                    yield change
        finally:
            with self._lock:
                self._watches.remove(changes)

    def list_pods(self, namespace: str, job: str, indexes: Collection[int] = ()) -> list[Object]:
        labels = [(pod, pod["metadata"].get("labels") or {}) for pod in self._all("Pod", namespace)]
        own = [(pod, each) for pod, each in labels if each.get(names.LABEL_JOB_NAME) == job]
        wanted = {str(index) for index in indexes}
        index = names.LABEL_WORKER_INDEX
        return [pod for pod, each in own if not wanted or each.get(index) in wanted]

    def list_nodes(self) -> list[Object]:
        return self._all("Node", None)

    def list_events(self, namespace: str, kind: str, name: str) -> list[Object]:
        about = {"kind": kind, "namespace": namespace, "name": name}
        events = list(self._events)
        return [dict(event) for event in events if about.items() <= event["regarding"].items()]

    def pod_log(
        self,
        namespace: str,
        pod: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since: str | None = None,
    ) -> Iterator[str]:
        """The present lines of a pod's log, which has no followers."""
        if pod not in self._logs:
            raise NotFound(f'pods "{pod}" not found')
        lines = list(self._logs[pod])
        yield from lines if tail_lines is None else lines[max(0, len(lines) - tail_lines) :]

    def _all(self, kind: str, namespace: str | None) -> list[Object]:
        with self._lock:
            found = sorted(self._objects.items())
        return [each for (k, place, _), each in found if k == kind and namespace in (None, place)]

    def _take(self, kind: str, change: str, found: Object) -> None:
        if kind not in KINDS:
            return
        metadata = found["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        with self._lock:
            # The cluster in memory lacks these times.
            known = self._objects.get(key)
            metadata["creationTimestamp"] = (
                known["metadata"]["creationTimestamp"] if known else write_time(self._now())
            )
            if change == "DELETED":
                self._objects.pop(key, None)
            else:
                self._objects[key] = found
            for each in self._watches if kind == names.KIND else ():
                each.put((change, found))


@contextlib.contextmanager
def serve_page(reader: MemoryReader, now: Callable[[], datetime] = time_of_day) -> Iterator[str]:
    """Serves the page of all jobs on 127.0.0.1 in a context; yields its secret address."""
    with PageServer(reader, LiveJobs(reader, None), now).serving() as url:
        try:
            yield url
        finally:
            reader.stop()
