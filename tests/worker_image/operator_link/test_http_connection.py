import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from elastic_pytorch.operator_link import http_connection
from elastic_pytorch.operator_link.http_connection import OperatorConnection, addresses_of

pytestmark = pytest.mark.process

PATH = "/v1/agent"


def test_operator_that_has_died_without_a_word_is_not_waited_for(deaf: socket.socket) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        OperatorConnection(*deaf.getsockname(), "").open_stream(PATH)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("reset", [True, False])
def test_handshake_that_the_operator_breaks_off_is_a_reason_for_patience(reset: bool) -> None:
    """Some Pythons, as Debian's 3.11, call that an orderly end of TLS, without a reset."""
    authorities = Path(certifi.where()).read_text()
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = OperatorConnection(*server.getsockname(), "", authorities)
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
            connection.open_stream(PATH)
    assert connection.patience == 2
    with pytest.raises(ConnectionRefusedError):
        connection.open_stream(PATH)
    assert connection.patience == 2, "which says nothing of how busy it is"


class Network:
    """Where host names lead, and what has been asked for."""

    def __init__(self, port: int) -> None:
        self.names_resolved = 0
        self.sockets: list[socket.socket] = []
        self.hosts: list[str] = []
        self.answers = True
        self._port = port

    def open_socket(self, place: tuple[str, int], seconds: float) -> socket.socket:
        host, _ = place
        self.hosts.append(host)
        self.names_resolved += host == "operator"
        if not self.answers:
            raise TimeoutError("no operator answers")
        self.sockets.append(socket.create_connection(("127.0.0.1", self._port), seconds))
        return self.sockets[-1]


@pytest.fixture
def network() -> Iterator[Network]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Network(server.getsockname()[1])


def test_name_of_the_operator_is_resolved_once(network: Network) -> None:
    connection = OperatorConnection("operator", 8443, "", open_socket=network.open_socket)
    for _ in range(2):
        connection.open_stream(PATH).close()
    assert len(network.sockets) == 2
    network.answers = False
    with pytest.raises(TimeoutError):
        connection.open_stream(PATH)
    assert network.names_resolved == 1, "the cluster's DNS may be gone with the operator's node"


def test_addresses_are_those_of_the_system() -> None:
    assert "127.0.0.1" in addresses_of("127.0.0.1")
    with pytest.raises(OSError):
        addresses_of("no-such-host.invalid")


def fail_for_long(
    connection: OperatorConnection, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Has a connection find its operator, and miss it until it asks for the name again."""
    monkeypatch.setattr(http_connection, "RESOLVE_AGAIN_SECONDS", 0.0)
    connection.open_stream(PATH).close()
    network.answers = False
    for _ in range(2):
        with pytest.raises(TimeoutError):
            connection.open_stream(PATH)
    network.answers = True


def test_name_server_that_does_not_answer_keeps_no_agent_from_an_operator_that_is_back(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def resolve(_: str) -> list[str]:
        answered.wait()
        raise socket.gaierror("no server could be reached")

    connection = OperatorConnection(
        "operator", 8443, "", open_socket=network.open_socket, resolve=resolve
    )
    try:
        fail_for_long(connection, network, monkeypatch)
        connection.open_stream(PATH).close()
    finally:
        answered.set()
    assert network.hosts == ["operator", "127.0.0.1", "127.0.0.1", "127.0.0.1"]


def test_operator_is_found_at_another_address(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = OperatorConnection(
        "operator", 8443, "", open_socket=network.open_socket, resolve=lambda _: ["127.0.0.9"]
    )
    fail_for_long(connection, network, monkeypatch)
    assert connection._resolver is not None
    connection._resolver.join()
    connection.open_stream(PATH).close()
    assert network.hosts[-1] == "127.0.0.9"


def test_kernel_gives_up_a_connection_whose_other_end_is_dead(network: Network) -> None:
    connection = OperatorConnection("operator", 8443, "", open_socket=network.open_socket)
    with contextlib.closing(connection.open_stream(PATH)):
        [kept] = network.sockets
        assert kept.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2000
        assert kept.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 1
