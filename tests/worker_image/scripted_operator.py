"""The operator's side of docs/internals/protocol.md, under a test's control.

A real HTTP server: agents find out who they are by their token, which is their name here, and are
told only what the test declares.
"""

import contextlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.ports import free_port
from tests.waiting import WAIT_SECONDS, until


@dataclass
class Heard:
    worker: str
    at: float
    body: dict[str, Any] = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        return self.body[name]


class ScriptedOperator:
    """Collects heartbeats and hands out the rounds that a test declares.

    Attributes:
        host: its address, and that of all workers if it is one of IPv6.
        heard: all heartbeats, in the order in which they came.
        answer_with: if set, each stream, and each heartbeat of one, is answered with it: status,
            headers and body.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.heard: list[Heard] = []
        self.answer_with: tuple[int, dict[str, str], bytes] | None = None
        self.heartbeat_seconds = 0.3
        self.round: dict[str, Any] = {
            "round": 0,
            "store": None,
            "cause": "",
            "orderlySince": 0,
            "keepsAllSince": 0,
        }
        self.members: list[str] = []
        self.nudge = 0
        self.dump = 0
        self.verdict: str | None = None
        self.left_rounds: set[int] = set()  # of which a member has stopped its workers
        self.requests = 0
        self._changed = threading.Condition()
        self._server: _Server | None = None
        self._port = free_port()
        self.come_back()

    @property
    def url(self) -> str:
        return (
            f"http://[{self.host}]:{self._port}"
            if ":" in self.host
            else f"http://{self.host}:{self._port}"
        )

    def come_back(self) -> None:
        self._server = _Server((self.host, self._port), self)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def go_away(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            server.cut()

    def declare(self, *workers: str, orderly: bool = False) -> int:
        """Declares the next round, of these workers in rank order; none: an empty one.

        Returns its number.

        An orderly one says that nobody has been lost since the round before.
        """
        with self._changed:
            number: int = self.round["round"] + 1
            store = (
                {"address": self._address(workers[0]), "port": self.last(workers[0]).port}
                if workers
                else None
            )
            since = self.round["orderlySince"] if orderly else number
            kept = self.round["keepsAllSince"] if set(self.members) <= set(workers) else number
            self.round = {
                "round": number,
                "store": store,
                "cause": "the test wants it",
                "orderlySince": since,
                "keepsAllSince": kept,
            }
            self.members = list(workers)
            self._changed.notify_all()
            return number

    def _address(self, worker: str) -> str:
        return self.host if ":" in self.host else address(worker)

    def ask_all(self) -> None:
        with self._changed:
            self.nudge += 1
            self._changed.notify_all()

    def ask_for_stacks(self) -> None:
        with self._changed:
            self.dump += 1
            self.nudge += 1
            self._changed.notify_all()

    def end(self, verdict: str) -> None:
        with self._changed:
            self.verdict = verdict
            self._changed.notify_all()

    def begin(self, *workers: str) -> int:
        """Waits until workers are ready, and declares a round of them; returns its number."""
        self.wait_for("ready", *workers)
        return self.declare(*workers)

    def complete(self, *workers: str) -> None:
        self.wait_for("succeeded", *workers)
        self.end("complete")

    def last(self, worker: str) -> Heard:
        found = self._newest(worker)
        assert found is not None, f"{worker} has said nothing"
        return found

    def states(self, worker: str) -> list[str]:
        with self._changed:
            states = [heard.state for heard in self.heard if heard.worker == worker]
        return [state for i, state in enumerate(states) if i == 0 or states[i - 1] != state]

    def wait(self, what: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
        return until(what, lambda: f"this; what was heard last: {self.heard[-6:]}", seconds)

    def wait_for(
        self, state: str, *workers: str, number: int | None = None, seconds: float = WAIT_SECONDS
    ) -> None:
        """Waits until the last that each worker said was this state (and round)."""

        def reached() -> bool:
            heard = [self._newest(worker) for worker in workers]
            return all(
                h is not None and h.state == state and number in (None, h.round) for h in heard
            )

        self.wait(reached, seconds)

    def _newest(self, worker: str) -> Heard | None:
        return next((heard for heard in reversed(self.heard) if heard.worker == worker), None)

    def take(self, worker: str, body: dict[str, Any]) -> dict[str, Any]:
        with self._changed:
            newest = self._newest(worker)
            before = newest.round if newest else 0
            if body["state"] == "ready" or body["round"] != before:
                self.left_rounds.add(before)
            self.heard.append(Heard(worker, time.monotonic(), body))
            return {
                "heartbeatSeconds": self.heartbeat_seconds,
                "peerStopped": body["round"] in self.left_rounds,
            }

    def news_for(self, worker: str, after: int, nudge: int, server: "_Server") -> dict[str, Any]:
        """What a worker is told once there is a newer round, another nudge or a verdict."""
        with self._changed:
            while (
                server is self._server
                and self.round["round"] <= after
                and self.nudge == nudge
                and self.verdict is None
            ):
                self._changed.wait(0.2)
            news = {
                **self.round,
                "nudge": self.nudge,
                "dump": self.dump,
                "verdict": self.verdict,
                "size": len(self.members),
            }
            news["rank"] = self.members.index(worker) if worker in self.members else None
            return news


def address(worker: str) -> str:
    return f"127.0.0.{int(worker[1:]) + 1}"


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, where: tuple[str, int], operator: ScriptedOperator) -> None:
        self.address_family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        super().__init__(where, _Handler)
        self.operator = operator
        self._connections: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None: ...
    def cut(self) -> None:
        for connection in list(self._connections):
            self.shutdown_request(connection)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        operator = self.server.operator
        self.close_connection = True
        if operator.answer_with is not None:
            self._answer(*operator.answer_with)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        news: threading.Thread | None = None
        for line in self._lines():
            fields = json.loads(line)
            if "token" in fields:
                continue
            operator.requests += 1
            if operator.answer_with is not None:
                status, headers, content = operator.answer_with
                refused = {
                    "status": status,
                    "error": "refused",
                    "retrySeconds": headers.get("Retry-After"),
                }
                self._say(b"heartbeat", content) if status == 200 else self._say(
                    b"refused", json.dumps(refused).encode()
                )
                return
            self._say(b"heartbeat", json.dumps(operator.take(self._worker(), fields)).encode())
            if news is None:
                news = threading.Thread(target=self._tell_news, daemon=True)
                news.start()

    def _lines(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline() or b"0", 16):
            yield from self.rfile.read(size).splitlines()
            self.rfile.readline()

    def _say(self, kind: bytes, content: bytes) -> None:
        line = b'{"%b": %b}\n' % (kind, content)
        self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))

    def _tell_news(self) -> None:
        operator, after, nudge = self.server.operator, -1, -1
        with contextlib.suppress(OSError, ValueError):  # the stream has ended
            while self.server is operator._server:
                found = operator.news_for(self._worker(), after, nudge, self.server)
                if (found["round"], found["nudge"]) != (after, nudge) or found["verdict"]:
                    self._say(b"round", json.dumps(found).encode())
                if found["verdict"]:
                    return
                after, nudge = found["round"], found["nudge"]

    def log_message(self, *_: Any) -> None: ...
    def _worker(self) -> str:
        return self.headers["Authorization"].removeprefix("Bearer ")

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.server.operator.requests += 1
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
