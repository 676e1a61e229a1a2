"""Object storage for tests: an S3 server (moto's), and a proxy that counts and makes faults."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LINE_SECONDS = 60.0


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]

    @property
    def kind(self) -> str:
        """The operation of S3."""
        for part, kind in (
            ("uploads=", "begin"),
            ("partNumber=", "part"),
            ("uploadId=", "end"),
            ("list-type", "list"),
            ("?delete", "delete"),
        ):
            if part in self.path:
                return "give up" if kind == "end" and self.method == "DELETE" else kind
        return self.method.lower()


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""


def s3_error(status: int, code: str, message: str = "as the test has it") -> Answer:
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status, f"<?xml version='1.0'?>{error}".encode())


@dataclass(frozen=True)
class CutAnswer:
    after: int


@dataclass(frozen=True)
class CutRequest:
    after: int


Fault = Answer | CutAnswer | CutRequest | None


class S3Server:
    def __init__(self) -> None:
        # Without buffering, and without the colours that would hide the port.
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "TERM": "dumb"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.port = self._read_port()
        threading.Thread(target=self._drain, daemon=True).start()

    def _read_port(self) -> int:
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                return int(found[1])
        raise AssertionError(f"moto's server does not start: {''.join(lines)}")

    def _drain(self) -> None:
        assert self.process.stderr is not None
        for _ in self.process.stderr:
            pass

    def make_bucket(self, name: str) -> None:
        self._ask("PUT", f"/{name}")

    def put(self, path: str, body: bytes) -> None:
        self._ask("PUT", path, body)

    def get(self, path: str) -> bytes:
        return self._ask("GET", path)

    def delete(self, path: str) -> None:
        self._ask("DELETE", path)

    def names(self, bucket: str) -> list[str]:
        return re.findall(
            r"<Key>([^<]*)</Key>", self._ask("GET", f"/{bucket}?list-type=2").decode()
        )

    def unfinished_uploads(self, bucket: str) -> int:
        return self._ask("GET", f"/{bucket}?uploads=").count(b"<Upload>")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, "
            "SignedHeaders=host, Signature=0",
            "Content-Type": "application/octet-stream",
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", body, headers, method=method
        )
        with urllib.request.urlopen(request, timeout=LINE_SECONDS) as answer:
            content: bytes = answer.read()
        return content

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Proxy:
    """Passes requests on to a server of this machine, unless `fault` handles them."""

    port_behind: int
    fault: Callable[[Request], Fault] = lambda _: None
    requests: list[Request] = field(default_factory=list)
    bytes_in: int = 0
    bytes_out: int = 0

    def __post_init__(self) -> None:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._lock = threading.Lock()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def kinds(self) -> list[str]:
        return [request.kind for request in self.requests]

    def forget(self) -> None:
        self.requests.clear()
        self.bytes_in = self.bytes_out = 0

    def note(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)

    def count(self, received: int, sent: int) -> None:
        with self._lock:
            self.bytes_in += received
            self.bytes_out += sent

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    owner: Proxy
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def setup(self) -> None:
        super().setup()
        self.behind = HTTPConnection("127.0.0.1", self.owner.port_behind, timeout=60)

    def finish(self) -> None:
        self.behind.close()
        super().finish()

    def _pass_on(self) -> None:
        request = Request(
            self.command, self.path, {name.lower(): value for name, value in self.headers.items()}
        )
        self.owner.note(request)
        fault = self.owner.fault(request)
        length = int(self.headers.get("Content-Length") or 0)
        if isinstance(fault, CutRequest):
            self.rfile.read(min(fault.after, length))
            self.close_connection = True
            return
        body = self.rfile.read(length)
        if isinstance(fault, Answer):
            self._answer(fault.status, {}, fault.body)
            return
        headers = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in {"host", "connection"}
        }
        try:
            self.behind.request(
                self.command, self.path, body or None, {**headers, "Host": self.headers["Host"]}
            )
            answer = self.behind.getresponse()
            content = answer.read()
        except (OSError, HTTPException):
            self.close_connection = True
            return
        self.owner.count(length, len(content))
        self._answer(
            answer.status,
            dict(answer.getheaders()),
            content,
            fault.after if isinstance(fault, CutAnswer) else None,
        )

    def _answer(
        self, status: int, headers: dict[str, str], content: bytes, cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in {
                "connection",
                "transfer-encoding",
                "content-length",
                "server",
                "date",
            }:
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        with contextlib.suppress(OSError):  # the client has gone
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content if cut is None else content[:cut])
        if cut is not None:
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815


@dataclass
class Bucket:
    name: str
    server: S3Server
    proxy: Proxy

    @property
    def url(self) -> str:
        return f"s3://{self.name}/run"

    def names(self) -> list[str]:
        return sorted(name.removeprefix("run/") for name in self.server.names(self.name))

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.proxy.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }
