"""How an agent finds the operator that leads, when another has led before."""

import contextlib
import http.server
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from elastic_pytorch.operator_link.client import OperatorClient
from elastic_pytorch.operator_link.http_connection import OperatorConnection
from elastic_pytorch.operator_link.refusal import RefusedError
from elastic_pytorch.operator_link.request_link import RequestLink

from tests.waiting import until


class StandbyFirst(http.server.BaseHTTPRequestHandler):
    """Two operators behind one address: a connection's first request finds out which; the first connection gets the wrong one."""

    protocol_version = "HTTP/1.1"
    connections = 0

    def setup(self) -> None:
        super().setup()
        type(self).connections += 1

    def do_GET(self) -> None:
        leads = self.connections > 1
        body = b"{}" if leads else b'{"error": "another one leads"}'
        self.send_response(200 if leads else 503)
        self.send_header("Content-Length", str(len(body)))
        if not leads:
            self.send_header("Retry-After", "1")
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def standby_first() -> Iterator[int]:
    StandbyFirst.connections = 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), StandbyFirst)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_who_is_sent_away_comes_back_on_another_connection(standby_first: int) -> None:
    connection = OperatorConnection("127.0.0.1", standby_first, "", timeout=10)
    with pytest.raises(RefusedError) as refusal:
        connection.request("GET", "/v1/round")
    assert (refusal.value.status, refusal.value.retry_after) == (503, 1.0)
    assert connection.request("GET", "/v1/round") == {}
    assert connection.request("GET", "/v1/round") == {}
    assert StandbyFirst.connections == 2, "and stays on it"


def test_operator_that_has_died_without_a_word_is_not_waited_for() -> None:
    with contextlib.ExitStack() as open_:
        dead = open_.enter_context(socket.socket())
        dead.bind(("127.0.0.1", 0))
        dead.listen(0)
        for _ in range(4):  # until the kernel takes no more
            waiting = open_.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(dead.getsockname())
        time.sleep(0.2)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            OperatorConnection(*dead.getsockname(), "", timeout=60).request("GET", "/v1/round")
        assert time.monotonic() - began < 30


@pytest.fixture
def answers() -> Iterator[tuple[int, threading.Event]]:
    """A server's port, and whether it answers."""
    may_answer = threading.Event()

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if may_answer.is_set():
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")
            else:
                time.sleep(1)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], may_answer
    server.shutdown()
    server.server_close()


def test_patience_with_an_operator_that_is_too_slow_doubles_until_it_answers(answers: tuple[int, threading.Event]) -> None:
    port, may_answer = answers
    connection = OperatorConnection("127.0.0.1", port, "", timeout=0.05)
    for patience in (2, 4, 4):
        with pytest.raises(TimeoutError):
            connection.request("GET", "/v1/round")
        assert connection.patience == patience
    may_answer.set()
    slower = OperatorConnection("127.0.0.1", port, "", timeout=10)
    slower.patience = 4
    assert slower.request("GET", "/v1/round") == {}
    assert slower.patience == 1


@pytest.mark.parametrize("reset", [True, False])
def test_handshake_that_the_operator_breaks_off_is_a_reason_for_patience(reset: bool) -> None:
    """Without a reset, some builds of Python call that an orderly end of TLS: the option is on in Debian's 3.11."""
    authorities = Path(certifi.where()).read_text()
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = OperatorConnection(*server.getsockname(), "", 10, authorities)
        kept: list[socket.socket] = []

        def break_off() -> None:
            accepted, _ = server.accept()
            if reset:
                accepted.close()
                return
            accepted.shutdown(socket.SHUT_WR)
            kept.append(accepted)

        if not reset:
            assert connection._tls is not None
            connection._tls.options |= ssl.OP_IGNORE_UNEXPECTED_EOF

        threading.Thread(target=break_off, daemon=True).start()
        with pytest.raises((ConnectionError, ssl.SSLError)):
            connection.request("GET", "/v1/round")
    assert connection.patience == 2
    with pytest.raises(ConnectionRefusedError):
        connection.request("GET", "/v1/round")
    assert connection.patience == 2, "which says nothing of how busy it is"


def test_agent_asks_for_rounds_only_once_a_heartbeat_was_answered() -> None:
    asked: list[str] = []
    may_answer = threading.Event()

    class Connection(OperatorConnection):
        def request(self, method: str, path: str, body: object = None) -> object:
            asked.append(method)
            if not may_answer.is_set():
                raise ConnectionRefusedError("not yet")
            time.sleep(0.05)
            return {"round": 0}

    def connection(timeout_seconds: float) -> Connection:
        return Connection("127.0.0.1", 1, "", timeout_seconds)

    client = OperatorClient(
        connection, local_world_size=1, port=lambda: 1, progress=dict, on_news=lambda: None, on_dump=lambda: None
    )
    threading.Thread(target=RequestLink(client).run, daemon=True).start()
    until(lambda: len(asked) >= 3)
    assert set(asked) == {"POST"}
    may_answer.set()
    until(lambda: "GET" in asked)
    client.stop()


class Network:
    """Where host names lead, and what has been asked for."""

    def __init__(self, port: int) -> None:
        self.names_resolved = 0
        self.sockets: list[socket.socket] = []
        self.answers = True
        self._port = port

    def open_socket(self, place: tuple[str, int], seconds: float) -> socket.socket:
        host, _ = place
        self.names_resolved += host == "operator"
        if not self.answers:
            raise TimeoutError("nobody answers")
        self.sockets.append(socket.create_connection(("127.0.0.1", self._port), seconds))
        return self.sockets[-1]


def test_name_of_the_operator_is_resolved_once(standby_first: int) -> None:
    network = Network(standby_first)
    connection = OperatorConnection("operator", 8443, "", timeout=10, open_socket=network.open_socket)
    with pytest.raises(RefusedError):
        connection.request("GET", "/v1/round")
    assert connection.request("GET", "/v1/round") == {}
    assert len(network.sockets) == 2
    network.answers = False
    connection.close()
    with pytest.raises(TimeoutError):
        connection.request("GET", "/v1/round")
    assert network.names_resolved == 1, "the cluster's DNS may be gone with the operator's node"


def test_kernel_gives_up_a_connection_whose_other_end_is_dead(standby_first: int) -> None:
    network = Network(standby_first)
    connection = OperatorConnection("operator", 8443, "", timeout=10, open_socket=network.open_socket)
    with pytest.raises(RefusedError):
        connection.request("GET", "/v1/round")
    assert connection.request("GET", "/v1/round") == {}
    [_, kept] = network.sockets
    assert kept.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2000
    assert kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 1
    assert kept.gettimeout() == 10
