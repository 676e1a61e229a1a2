"""One HTTP connection to the operator, kept alive between requests."""

import contextlib
import http.client
import json
import math
import socket
from pathlib import Path
from typing import Any

MAX_ANSWER_BYTES = 32 << 20
MAX_RETRY_AFTER_SECONDS = 30.0
# Short, and one repetition of a lost packet long: an operator whose node has died does not answer, and the next try may find another.
CONNECT_TIMEOUT_SECONDS = 2.0


class RefusedError(OSError):
    """The operator answered with another status than 200.

    Attributes:
        status: the HTTP status.
        retry_after: the seconds that the operator wants to be left alone, None if it did not say.
    """

    def __init__(self, status: int, reason: str, retry_after: float | None) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.retry_after = retry_after


class OperatorConnection:
    """Sends requests one after the other, from one thread.

    Args:
        host: the operator's.
        port: the operator's.
        token_file: read anew for each request, as the kubelet renews the token; empty: no token is sent.
        timeout: the seconds to wait for an answer.
    """

    def __init__(self, host: str, port: int, token_file: str, timeout: float) -> None:
        self._host = host
        self._port = port
        self._token_file = token_file
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Sends a request.

        Returns:
            The answer's JSON.

        Raises:
            RefusedError: the operator refused it.
            OSError: there was no answer.
            http.client.HTTPException: there was one that is not HTTP.
            ValueError: there was one that is not JSON.
        """
        fresh = self._connection is None
        try:
            try:
                return self._exchange(method, path, body)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if fresh:
                    raise
                self.close()  # the server had closed a connection that idled: no reason to wait
                return self._exchange(method, path, body)
        except RefusedError:
            raise
        except Exception:
            self.close()
            raise

    def interrupt(self) -> None:
        """Makes a request that waits for its answer fail at once. From another thread."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, method: str, path: str, body: object) -> Any:
        connection = self._connection or self._connect()
        headers = {"Accept": "application/json"}
        if self._token_file:
            headers["Authorization"] = f"Bearer {Path(self._token_file).read_text(encoding='ascii').strip()}"
        content = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(body).encode()
        connection.request(method, path, content, headers)
        response = connection.getresponse()
        answer = response.read(MAX_ANSWER_BYTES)
        if response.will_close:
            self.close()  # the next connection is a new one of this class, and perhaps finds another operator
        if not response.isclosed():
            raise ValueError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
        if response.status != http.client.OK:
            raise RefusedError(response.status, _reason(answer, response.reason), _retry_after(response))
        return json.loads(answer)

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=min(CONNECT_TIMEOUT_SECONDS, self._timeout))
        connection.connect()
        connection.sock.settimeout(self._timeout)
        # A poll's connection idles for long: notice in seconds that its other end is no more.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._connection = connection
        return connection


def _reason(answer: bytes, reason: str) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return ascii(str(json.loads(answer)["error"])[:500])
    return ascii(reason[:100])


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    try:
        seconds = float(response.headers.get("Retry-After", ""))
    except ValueError:
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS) if math.isfinite(seconds) else None
