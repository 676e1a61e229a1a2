"""A recorded cluster whose watches last, and a page's server on it."""

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from elastic_pytorch_client.page.live_jobs import LiveJobs
from elastic_pytorch_client.page.server import PageServer
from elastic_pytorch_client.reading.job_view import JobView

from tests.plugin.recorded_cluster import Object, RecordedCluster, moment_of


class WatchedCluster(RecordedCluster):
    """A RecordedCluster that tells of changes in a watch that lasts until it is stopped."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self._changes: queue.Queue[tuple[str, Object] | None] = queue.Queue()

    def watch_jobs(
        self, namespace: str | None, name: str | None = None, *, seconds: int = 60
    ) -> Iterator[tuple[str, Object]]:
        while (change := self._changes.get()) is not None:
            yield change

    def change(self, job: Object) -> None:
        self.put(job)
        self._changes.put(("MODIFIED", self.get_job(self.namespace, job["metadata"]["name"])))

    def delete(self, name: str) -> None:
        job = self.get_job(self.namespace, name)
        self.remove(name)
        self._changes.put(("DELETED", job))

    def tell(self, events: list[Object]) -> None:
        self._events += events

    def put_nodes(self, nodes: list[Object]) -> None:
        self._nodes = nodes

    def stop(self) -> None:
        self._changes.put(None)


@contextmanager
def served(
    cluster: WatchedCluster,
    now: Callable[[], datetime] = lambda: moment_of("young"),
    stacks_of: Callable[[JobView], list[dict[str, Any]]] | None = None,
) -> Iterator[PageServer]:
    """A page's server on a cluster."""
    live = LiveJobs(cluster, cluster.namespace)
    with PageServer(cluster, live, now, stacks_of=stacks_of) as server:
        live.start()
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        live.stop()
        cluster.stop()
        server.shutdown()


def ask(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, str, dict[str, str]]:
    """What the server answers: the code, the body, the headers. The path is as it is sent."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": f"127.0.0.1:{server.server_port}", **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body, dict(response.headers)


@contextmanager
def events_of_page(server: PageServer) -> Iterator[Iterator[Any]]:
    """The messages of the page's stream of changes, as they come."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("GET", f"/{server.secret}/events")
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "text/event-stream"
    yield _messages(response)
    response.close()
    connection.close()


def _messages(response: HTTPResponse) -> Iterator[Any]:
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))
