"""Connections to the operator, whose leader may change."""

import contextlib
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

from elastic_pytorch.operator_link.first_connection import connect_first
from elastic_pytorch.operator_link.stream import OperatorStream

CONNECT_TIMEOUT_SECONDS = 1.0  # kernels answer at once, even for a busy operator
HANDSHAKE_TIMEOUT_SECONDS = 2.0
MAX_PATIENCE = 4
RESOLVE_AGAIN_SECONDS = 10.0  # of failure: the Service may have another address
# The kernel closes a connection whose other end acknowledges nothing for 2 s, even an idle one. The
# kernel of a live operator acknowledges, however busy the operator is.
DEAD_PEER_OPTIONS = (
    ("TCP_USER_TIMEOUT", 2000),
    ("TCP_KEEPIDLE", 1),
    ("TCP_KEEPINTVL", 1),
    ("TCP_KEEPCNT", 3),
)


def addresses_of(name: str) -> list[str]:
    return [str(place[0]) for *_, place in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


class OperatorConnection:
    """Opens one connection after the other, from one thread.

    The name is resolved once, because the cluster's DNS may be lost with the operator. After
    failures of some seconds, another thread resolves it again: a look-up may take minutes, and the
    operator return at its old address meanwhile.

    The waits for handshakes and answers double while an operator that can be reached is too slow.
    Otherwise a new leader would work on connections that thousands of agents have given up.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token_file: str,
        authorities: str = "",
        open_socket: Callable[[tuple[str, int], float], socket.socket] = connect_first,
        resolve: Callable[[str], list[str]] = addresses_of,
    ) -> None:
        self._tls = ssl.create_default_context(cadata=authorities) if authorities else None
        self._host = host
        self._port = port
        self._token_file = token_file
        self._open_socket = open_socket
        self._resolve = resolve
        self._resolver: threading.Thread | None = None
        self._address = ""  # of the operator's last connection, or a newer one
        self._failing_since: float | None = None
        self.patience = 1  # the factor of the waits for handshakes and answers

    def open_stream(self, path: str) -> OperatorStream:
        token = self.token()
        return OperatorStream(self._connect(), f"{self._host}:{self._port}", path, token)

    def token(self) -> str:
        """The file's present token; empty: there is no file."""
        return (
            Path(self._token_file).read_text(encoding="ascii").strip() if self._token_file else ""
        )

    def wait_longer(self) -> None:
        self.patience = min(2 * self.patience, MAX_PATIENCE)

    def _connect(self) -> socket.socket:
        try:
            found = self._open()
        except OSError:
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            if self._address and now - self._failing_since > RESOLVE_AGAIN_SECONDS:
                self._look_up()
            raise
        self._failing_since = None
        return found

    def _look_up(self) -> None:
        if self._resolver is None or not self._resolver.is_alive():
            self._resolver = threading.Thread(
                target=self._find_address, name="operator_address", daemon=True
            )
            self._resolver.start()

    def _find_address(self) -> None:
        with contextlib.suppress(OSError):
            self._address = random.choice(self._resolve(self._host))

    def _open(self) -> socket.socket:
        found = self._open_socket(
            (self._address or self._host, self._port), CONNECT_TIMEOUT_SECONDS
        )
        try:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in DEAD_PEER_OPTIONS:
                if hasattr(socket, option):
                    found.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            self._address = found.getpeername()[0]
            if self._tls:
                found.settimeout(self.patience * HANDSHAKE_TIMEOUT_SECONDS)
                try:
                    found = self._tls.wrap_socket(found, server_hostname=self._host)
                except (TimeoutError, ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
                    self.wait_longer()
                    raise
        except BaseException:
            found.close()
            raise
        return found
