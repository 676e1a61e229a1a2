"""One HTTP connection to the operator, kept alive between requests."""

import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastic_pytorch.operator_link.first_connection import connect_first
from elastic_pytorch.operator_link.refusal import RefusedError, reason_of, retry_after
from elastic_pytorch.operator_link.stream import OperatorStream

MAX_ANSWER_BYTES = 32 << 20
CONNECT_TIMEOUT_SECONDS = 1.0  # kernels answer at once, however busy the operator is
HANDSHAKE_TIMEOUT_SECONDS = 2.0
MAX_PATIENCE = 4
RESOLVE_AGAIN_SECONDS = 10.0  # of failure: the Service's address may be another one
# The kernel closes a connection whose other end acknowledges nothing for 2 s, even an idle one, as a poll's is most of the time. The kernel
# of a live operator acknowledges however busy the operator is. Not every system has each of these options.
DEAD_PEER_OPTIONS = (("TCP_USER_TIMEOUT", 2000), ("TCP_KEEPIDLE", 1), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3))


class OperatorConnection:
    """Sends requests one after the other, from one thread.

    The name is resolved once: the cluster's DNS may have lost a server together with the operator.

    Thousands of agents may look for a new leader together. If each gave up as early as one alone, and came again at once, the operator
    would work on connections that have just been given up. So the times double while an operator that can be reached is too slow.

    Args:
        host: the operator's.
        port: the operator's.
        token_file: read again for each request, as the kubelet renews the token; empty: no token is sent.
        timeout: the seconds to wait for an answer.
        authorities: which must have signed the operator's certificate, PEM; empty: plain HTTP is used.
        open_socket: connects to a host, given by name or address, and a port within the given seconds.

    Attributes:
        patience: by how much times are longer than usual, 1 to 4: it doubles each time the operator can be reached and does not answer
            in time, or closes the connection within the handshake.
    """

    def __init__(
        self,
        host: str,
        port: int,
        token_file: str,
        timeout: float,
        authorities: str = "",
        open_socket: Callable[[tuple[str, int], float], socket.socket] = connect_first,
    ) -> None:
        self._tls = ssl.create_default_context(cadata=authorities) if authorities else None
        self._host = host
        self._port = port
        self._token_file = token_file
        self._timeout = timeout
        self._open_socket = open_socket
        self._connection: http.client.HTTPConnection | None = None
        self._address = ""  # where the operator was found last
        self._failing_since: float | None = None
        self.patience = 1

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Sends a request.

        Returns:
            The answer's JSON.

        Raises:
            RefusedError: the operator refused it.
            OSError: there was no answer.
            http.client.HTTPException: the answer was not HTTP.
            ValueError: the answer was not JSON.
        """
        fresh = self._connection is None
        try:
            try:
                answer = self._exchange(method, path, body)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if fresh:
                    raise
                self.close()  # the server has closed an idle connection: no reason to wait
                answer = self._exchange(method, path, body)
        except RefusedError:
            self.patience = 1
            raise
        except Exception as error:
            # With a number, it is the kernel that has heard nothing of the other one.
            if self._connection is not None and isinstance(error, TimeoutError) and error.errno is None:
                self.wait_longer()
            self.close()
            raise
        self.patience = 1
        return answer

    def open_stream(self, path: str) -> OperatorStream:
        """Opens another connection, whose only request is a stream of lines, as its answer is.

        Raises:
            OSError: there is no connection.
        """
        self.close()
        token = self.token()
        return OperatorStream(self._connect(), f"{self._host}:{self._port}", path, token)

    def token(self) -> str:
        """The token that the file has now; empty: there is no file."""
        return Path(self._token_file).read_text(encoding="ascii").strip() if self._token_file else ""

    def interrupt(self) -> None:
        """Makes a request that waits for its answer fail at once. From another thread."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                # Below TLS, whose close_notify must not be sent from another thread.
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def wait_longer(self) -> None:
        """Takes note that the operator can be reached and is too slow."""
        self.patience = min(2 * self.patience, MAX_PATIENCE)

    def _exchange(self, method: str, path: str, body: object) -> Any:
        connection = self._connection or self._connect_for_requests()
        if connection.sock is not None:
            connection.sock.settimeout(self.patience * self._timeout)
        headers = {"Accept": "application/json"}
        if token := self.token():
            headers["Authorization"] = f"Bearer {token}"
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(body).encode()
        connection.request(method, path, content, headers)
        response = connection.getresponse()
        answer = response.read(MAX_ANSWER_BYTES)
        if response.will_close:
            self.close()  # the next connection may reach another operator
        if not response.isclosed():
            raise ValueError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
        if response.status != http.client.OK:
            raise RefusedError(response.status, reason_of(answer, response.reason), retry_after(response.headers))
        return json.loads(answer)

    def _connect_for_requests(self) -> http.client.HTTPConnection:
        found = self._connect()
        self._connection = http.client.HTTPConnection(self._host, self._port)
        self._connection.sock = found
        self._connection.auto_open = 0  # it would open a connection without TLS
        return self._connection

    def _connect(self) -> socket.socket:
        try:
            found = self._open()
        except OSError:
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            if now - self._failing_since > RESOLVE_AGAIN_SECONDS:
                self._address = ""
            raise
        self._failing_since = None
        return found

    def _open(self) -> socket.socket:
        found = self._open_socket((self._address or self._host, self._port), min(CONNECT_TIMEOUT_SECONDS, self._timeout))
        try:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in DEAD_PEER_OPTIONS:
                if hasattr(socket, option):
                    found.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            self._address = found.getpeername()[0]
            if self._tls:
                found.settimeout(self.patience * min(HANDSHAKE_TIMEOUT_SECONDS, self._timeout))
                try:
                    found = self._tls.wrap_socket(found, server_hostname=self._host)
                except (TimeoutError, ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
                    self.wait_longer()
                    raise
        except BaseException:
            found.close()
            raise
        return found
