"""An HTTP server that answers as an API server does."""

import contextlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


def status(code: int, message: str, name: str = "") -> bytes:
    return json.dumps(
        {"kind": "Status", "code": code, "message": message, "details": {"name": name}}
    ).encode()


def kubeconfig(port: int) -> dict[str, Any]:
    """With two contexts: `one` is current, and has the namespace `team`."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "here", "user": "me", "namespace": "team"}},
            {"name": "two", "context": {"cluster": "here", "user": "me"}},
        ],
        "current-context": "one",
    }


class ApiServer(ThreadingHTTPServer):
    """Answers as it is told, and remembers what it was asked.

    Attributes:
        answers: by method and path: a code, and a body or the chunks of one.
        asked: method, path, query, body.
        acting: the headers of each request that make its user act as another.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[tuple[str, str], list[tuple[int, bytes | list[bytes]]]] = {}
        self.asked: list[tuple[str, str, dict[str, list[str]], Any]] = []
        self.content_types: list[str] = []
        self.acting: list[list[tuple[str, str]]] = []

    @property
    def kubeconfig(self) -> dict[str, Any]:
        return kubeconfig(self.server_port)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        assert isinstance(self.server, ApiServer)
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append((self.command, parts.path, parse_qs(parts.query), body))
        self.server.content_types.append(self.headers.get("Content-Type", ""))
        self.server.acting.append(
            [
                (name, value.encode("latin-1").decode())
                for name, value in self.headers.items()
                if name.startswith("Impersonate-")
            ]
        )
        answers = self.server.answers.get((self.command, parts.path)) or [
            (404, b"404 page not found\n")
        ]
        code, content = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(code)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client has gone
            for chunk in content if isinstance(content, list) else [content]:
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        ...
