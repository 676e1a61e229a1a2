"""One connection to the operator for both directions: its request and answer are JSON lines.

Both are HTTP/1.1 with chunks (RFC 9112, section 7.1). The standard library's client reads no answer
while it sends, and only one thread at a time may use its TLS sockets. So one thread waits for the
socket, reads, and sends in between.
"""

import http.client
import io
import json
import socket
import ssl
from typing import Any

from elastic_pytorch.operator_link.retry import RefusedError, pause_seconds, reason_of

RECEIVE_BYTES = 64 * 1024
MAX_BYTES = 32 << 20  # of a line, or of a head
SEND_TIMEOUT_SECONDS = 5.0
END_OF_HEAD = b"\r\n\r\n"


class OperatorStream:
    def __init__(self, connected: socket.socket, host: str, path: str, token: str) -> None:
        self._socket = connected
        self._token = token
        self._reader = AnswerReader()
        self._ended = False
        shown = f"Authorization: Bearer {token}\r\n" if token else ""
        self._unsent = (
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/x-ndjson\r\n{shown}"
            "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
        ).encode()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, value: object, token: str) -> None:
        """Sends a line, after the token if that is new."""
        if token != self._token:
            self._unsent += _chunk({"token": token})
            self._token = token
        self._socket.settimeout(SEND_TIMEOUT_SECONDS)
        self._socket.sendall(self._unsent + _chunk(value))
        self._unsent = b""

    def receive(self) -> list[Any]:
        """Decodes the lines that have arrived, without a wait.

        Raises:
            RefusedError: the operator has refused the request.
            ConnectionError: the operator has ended the stream, or closed the connection.
        """
        self._socket.settimeout(0)
        lines: list[Any] = []
        while not self._ended:
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return lines
            lines += map(json.loads, self._reader.feed(data))
            self._ended = not data or self._reader.ended
        if not lines:
            raise ConnectionResetError("the operator has ended the stream")
        return lines

    def close(self) -> None:
        self._socket.close()


class AnswerReader:
    def __init__(self) -> None:
        self.ended = False
        self._received = bytearray()
        self._line = bytearray()
        self._in_body = False

    def feed(self, data: bytes) -> list[bytes]:
        """Returns the lines that are complete; raises RefusedError for any status but 200."""
        self._received += data
        if not self._in_body and END_OF_HEAD in self._received:
            self._read_head()
        if self._in_body:
            self._read_chunks()
        if len(self._received) + len(self._line) > MAX_BYTES:
            raise ValueError(f"a line of more than {MAX_BYTES} bytes")
        *lines, self._line = self._line.split(b"\n")
        return [bytes(line) for line in lines]

    def _read_head(self) -> None:
        head, _, rest = self._received.partition(END_OF_HEAD)
        first, _, fields = bytes(head).partition(b"\r\n")
        version, _, status = first.decode("latin-1").partition(" ")
        code, _, reason = status.partition(" ")
        if not version.startswith("HTTP/1.") or not code.isdecimal():
            raise ValueError("the answer is not HTTP")
        headers = http.client.parse_headers(io.BytesIO(fields + END_OF_HEAD))
        if int(code) != http.client.OK:
            length = headers.get("Content-Length", "")
            if length.isdecimal() and len(rest) < min(int(length), MAX_BYTES):
                return  # the rest of the reason follows
            pause = pause_seconds(headers.get("Retry-After"))
            raise RefusedError(int(code), reason_of(bytes(rest), reason), pause)
        if headers.get("Transfer-Encoding", "").lower() != "chunked":
            raise ValueError("the answer is not a stream")
        self._received, self._in_body = rest, True

    def _read_chunks(self) -> None:
        while not self.ended and (end := self._received.find(b"\r\n")) >= 0:
            size = int(bytes(self._received[:end]).partition(b";")[0], 16)
            if size < 0:
                raise ValueError("the answer is not HTTP")
            begin = end + 2
            if len(self._received) < begin + size + 2:
                break
            self._line += self._received[begin : begin + size]
            del self._received[: begin + size + 2]
            self.ended = size == 0


def refusal_of(fields: dict[str, Any]) -> RefusedError:
    status = fields.get("status")
    reason = ascii(str(fields.get("error"))[:500])
    return RefusedError(
        status if isinstance(status, int) else 0, reason, pause_seconds(fields.get("retrySeconds"))
    )


def _chunk(value: object) -> bytes:
    line = json.dumps(value).encode() + b"\n"
    return b"%x\r\n%b\r\n" % (len(line), line)
