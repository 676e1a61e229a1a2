"""The server of the page: for this machine, for who has the secret, and read-only."""

import json
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

import yaml

from elastic_pytorch_client.cluster import ClusterReader
from elastic_pytorch_client.errors import EpjError, NoSuchJob, NotAllowed
from elastic_pytorch_client.evidence import read_evidence, read_nodes
from elastic_pytorch_client.manifest import shown_manifest
from elastic_pytorch_client.page.details import details_of, log_of
from elastic_pytorch_client.page.live_jobs import Changes, LiveJobs
from elastic_pytorch_client.page.node_rows import nodes_of
from elastic_pytorch_client.page.requests import HEADERS, Refusal, Target, check_request, is_name
from elastic_pytorch_client.reading.job_view import JobView, view_job
from elastic_pytorch_client.reading.nodes import NodeView
from elastic_pytorch_client.worker_logs import Choice, find_workers, read_logs

ADDRESS = "127.0.0.1"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
KINDS[".svg"] = "image/svg+xml"
PAGE = "page.html"
NOTHING = b"there is nothing here"
KEEP_ALIVE_SECONDS = 10.0  # between two comments, without which a page's end goes unnoticed
IDLE_SECONDS = 60  # until a connection is closed
LOG_LINES = 200
MAX_DIGITS = 9  # of an index
# A large cluster's list of nodes is long, and an open page asks for it often.
KEPT = timedelta(minutes=1)


@dataclass
class KeptNodes:
    cluster: ClusterReader
    now: Callable[[], datetime]
    _read: datetime | None = None
    _nodes: list[NodeView] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def nodes(self) -> list[NodeView] | None:
        with self._lock:
            now = self.now()
            if self._read is None or not timedelta() <= now - self._read < KEPT:
                self._read, self._nodes = now, read_nodes(self.cluster)
            return self._nodes


class PageServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self,
        cluster: ClusterReader,
        live: LiveJobs,
        now: Callable[[], datetime],
        port: int = 0,
        stacks_of: Callable[[JobView], list[dict[str, Any]]] | None = None,
    ) -> None:
        """With `stacks_of`, the page offers what `kubectl epj stacks -o json` prints."""
        self.cluster, self.live, self.now, self.stacks_of = cluster, live, now, stacks_of
        self.nodes = KeptNodes(cluster, now)
        self.secret = secrets.token_urlsafe(24)
        super().__init__((ADDRESS, port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/{self.secret}/"

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serves the page, with its live rows, in a context; yields its secret address."""
        with self:
            self.live.start()
            threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()
            try:
                yield self.url
            finally:
                self.live.stop()
                self.shutdown()

    @cached_property
    def static(self) -> dict[str, bytes]:
        found = (files("elastic_pytorch_client.page") / "static").iterdir()
        return {file.name: file.read_bytes() for file in found if file.name.endswith(tuple(KINDS))}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores connections that a browser has closed."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS

    def answer(self) -> None:
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        secret, port = self.server.secret, self.server.server_port
        match check_request(self.command, self.path, hosts, origins, secret=secret, port=port):
            case Refusal(code, message):
                self.close_connection = True  # a body may follow
                self._send(code, "text/plain", message.encode())
            case target:
                self._answer(target)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Prints nothing, so that the page's address stays in sight."""

    def _answer(self, target: Target) -> None:
        server = self.server
        match target.parts:
            case (name,) if (file := name or PAGE) in server.static:
                kind = KINDS[file[file.rindex(".") :]]
                self._send(HTTPStatus.OK, f"{kind}; charset=utf-8", server.static[file])
            case ("events",):
                self._stream()
            case ("nodes",):
                self._send_data(
                    lambda: nodes_of(server.live.jobs(), server.nodes.nodes(), server.now())
                )
            case (kind, namespace, name) if is_name(namespace) and is_name(name):
                self._answer_about(kind, namespace, name, target.query)
            case _:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", NOTHING)

    def _answer_about(self, kind: str, namespace: str, name: str, query: str) -> None:
        stacks_of = self.server.stacks_of
        match kind:
            case "jobs":
                self._send_data(lambda: self._job(namespace, name))
            case "manifests":
                self._send_data(lambda: self._manifest(namespace, name))
            case "logs":
                asked = parse_qs(query)
                index, lines = asked.get("index", [""])[0], None if "whole" in asked else LOG_LINES
                self._send_data(lambda: self._log(namespace, name, index, lines))
            case "stacks" if stacks_of is not None:
                self._send_data(lambda: {"groups": stacks_of(self._view(namespace, name))})
            case _:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", NOTHING)

    def _view(self, namespace: str, name: str) -> JobView:
        return view_job(self.server.cluster.get_job(namespace, name))

    def _job(self, namespace: str, name: str) -> Any:
        server, job = self.server, self._view(namespace, name)
        evidence = read_evidence(server.cluster, job, server.nodes.nodes(), server.now())
        return details_of(job, evidence) | {"stacks": self.server.stacks_of is not None}

    def _manifest(self, namespace: str, name: str) -> Any:
        manifest = shown_manifest(self.server.cluster.get_job(namespace, name))
        return {"yaml": yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True)}

    def _log(self, namespace: str, name: str, index: str, tail_lines: int | None) -> Any:
        if not (index.isascii() and index.isdecimal() and len(index) <= MAX_DIGITS):
            return {"lines": []}
        choice = Choice(indexes=frozenset({int(index)}))
        job = find_workers(self.server.cluster, self._view(namespace, name), choice)
        return {"lines": log_of(read_logs(self.server.cluster, job, choice, tail_lines=tail_lines))}

    def _send_data(self, read: Callable[[], Any]) -> None:
        try:
            code, data = HTTPStatus.OK, read()
        except EpjError as error:
            code = HTTPStatus.BAD_GATEWAY
            if isinstance(error, NoSuchJob):
                code = HTTPStatus.NOT_FOUND
            elif isinstance(error, NotAllowed):
                code = HTTPStatus.FORBIDDEN
            data = {"error": str(error)}
        self._send(code, "application/json", json.dumps(data, allow_nan=False).encode())

    def _stream(self) -> None:
        self.close_connection = True
        self._begin(HTTPStatus.OK, "text/event-stream")
        shown: dict[str, str] = {}
        trouble = ""
        live = self.server.live
        # That there are no jobs is news, too.
        changes: Changes | None = live.changes(shown, trouble, 0) or Changes({}, (), "")
        while not live.stopped:
            if changes is None:
                self.wfile.write(b": still here\n\n")
            else:
                trouble = changes.trouble
                shown.update(changes.rows)
                for uid in changes.removed:
                    del shown[uid]
                about = {"removed": changes.removed, "trouble": trouble}
                more = json.dumps(about | {"namespace": live.namespace})
                rows = ",".join(changes.rows.values())
                self.wfile.write(f'data: {{"rows":[{rows}],{more[1:]}\n\n'.encode())
            changes = live.changes(shown, trouble, KEEP_ALIVE_SECONDS)

    def _begin(self, code: HTTPStatus, kind: str, length: int | None = None) -> None:
        self.send_response(code)
        headers = {"Content-Type": kind, **HEADERS}
        headers |= {} if length is None else {"Content-Length": str(length)}
        headers |= {"Connection": "close"} if self.close_connection else {}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        self._begin(code, kind, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)
