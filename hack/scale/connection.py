"""A stream of JSON lines to a server and one from it, in one HTTP request, cheap enough for ten thousand in a process.

It works on the socket itself: asyncio's streams take 256 KiB for each TLS connection, and several times the processor time. What it
does when the operator does not answer is what worker_image/elastic_pytorch/operator_link/ does for a real agent.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

CONNECT_SECONDS = 1.0
ATTEMPT_SECONDS = 0.25  # then another attempt: it may reach another operator
HANDSHAKE_SECONDS = 2.0
MAX_PATIENCE = 4
CHUNK_BYTES = 64 * 1024
OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 18), 2000),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 4), 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


class RefusedError(OSError):
    """Another status than 200 or 201; `retry_seconds`: for which the server refuses further requests, None: not given."""

    def __init__(self, status: int, text: str, retry_seconds: float | None) -> None:
        super().__init__(f"{status} {text}")
        self.status, self.retry_seconds = status, retry_seconds


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is; without `tls` it speaks plain HTTP."""

    host: str
    address: str
    port: int
    tls: ssl.SSLContext | None = None


@asynccontextmanager
async def in_time(seconds: float) -> AsyncIterator[None]:
    """Raises TimeoutError if what is done within the context takes longer.

    What has arrived in time counts, also if this process has not read it yet. It is ten thousand agents, and may be late by seconds: each
    real agent has a process of its own, and is not. So when the time is over, all that can be read is read first.
    """
    loop, over = asyncio.get_running_loop(), False
    async with asyncio.timeout(None) as limit:

        def expire() -> None:
            if not over:
                limit.reschedule(loop.time())

        timer = loop.call_later(seconds, loop.call_soon, loop.call_soon, expire)
        try:
            yield
        finally:
            over = True
            timer.cancel()


class Connection:
    """Sends and receives lines, from one task.

    Args:
        source: the address that it comes from; empty: the machine's own.

    Attributes:
        patience: by how much times are longer than usual, as the server is too slow.
    """

    def __init__(self, server: Server, source: str = "") -> None:
        self._server, self._source = server, source
        self._socket: socket.socket | None = None
        self._ready: asyncio.Future[None] | None = None
        self._unsent = b""
        self._received, self._line = bytearray(), bytearray()
        self._in_body = False
        self.patience = 1

    async def open(self, path: str, headers: Mapping[str, str]) -> None:
        """Connects, for another request.

        Raises:
            OSError: there is no connection.
        """
        self.close()
        await self._connect()
        host = f"{self._server.host}:{self._server.port}"
        kind = {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked"}
        fields = {"Host": host, "Accept-Encoding": "identity", **headers, **kind}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._unsent = f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode()
        self._received, self._line, self._in_body = bytearray(), bytearray(), False

    def send(self, fields: Any) -> None:
        """Sends a line, so small that the kernel takes it whole.

        Raises:
            OSError: the connection is closed, or full.
        """
        if self._socket is None:
            raise ConnectionResetError("closed")
        line = json.dumps(fields).encode() + b"\n"
        self._socket.sendall(self._unsent + b"%x\r\n%b\r\n" % (len(line), line))
        self._unsent = b""

    async def receive(self, seconds: float) -> list[dict[str, Any]]:
        """Waits until there are lines, the connection is poked, or the time is over; returns the lines.

        Raises:
            RefusedError: the server refuses.
            OSError: the server has ended the stream, or the connection has failed.
        """
        self._received += await self._receive_bytes(seconds)
        if not self._in_body:
            head, found, rest = self._received.partition(b"\r\n\r\n")
            if not found:
                return []
            check_head(head, rest)
            self._received, self._in_body = rest, True
        while (end := self._received.find(b"\r\n")) >= 0:
            size, begin = int(self._received[:end], 16), end + 2
            if len(self._received) < begin + size + 2:
                break
            if not size:
                raise ConnectionResetError("the server has ended the stream")
            self._line += self._received[begin : begin + size]
            del self._received[: begin + size + 2]
        *lines, self._line = self._line.split(b"\n")
        return [json.loads(line) for line in lines]

    def poke(self) -> None:
        """Ends the current `receive`."""
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def close(self) -> None:
        """Closes the connection; a `receive` that waits fails."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(ConnectionResetError("closed"))

    def wait_longer(self) -> None:
        """Takes note that the server is too slow."""
        self.patience = min(2 * self.patience, MAX_PATIENCE)

    async def _receive_bytes(self, seconds: float) -> bytes:
        """What has come, or comes next; empty: nothing came within the time, or before `poke`."""
        timer = None
        try:
            while True:
                if self._socket is None:
                    raise ConnectionResetError("closed")
                with suppress(BlockingIOError, ssl.SSLWantReadError):
                    if found := self._socket.recv(CHUNK_BYTES):
                        return bytes(found)
                    raise ConnectionResetError("the server has closed the connection")
                if timer is not None:
                    return b""
                timer = asyncio.get_running_loop().call_later(seconds, self.poke)
                await self._readable(self._socket)
        finally:
            if timer is not None:
                timer.cancel()

    async def _readable(self, opened: socket.socket) -> None:
        self._ready = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(opened, self._wake)
        await self._ready

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)
        elif self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)  # until it is wanted

    async def _connect(self) -> None:
        opened = await self._open()
        if self._server.tls is None:
            self._socket = opened
            return
        try:
            wrapped = self._server.tls.wrap_socket(opened, server_hostname=self._server.host, do_handshake_on_connect=False)
            self._socket = opened = wrapped
            try:
                async with in_time(HANDSHAKE_SECONDS * self.patience):
                    await self._shake_hands(wrapped)
            except (TimeoutError, ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
                self.wait_longer()
                raise
        except BaseException:
            self.close()
            opened.close()
            raise

    async def _shake_hands(self, opened: ssl.SSLSocket) -> None:
        while True:
            try:
                opened.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._readable(opened)

    async def _open(self) -> socket.socket:
        until = asyncio.get_running_loop().time() + CONNECT_SECONDS
        while True:
            attempt = socket.socket()
            try:
                attempt.setblocking(False)
                for option in OPTIONS:
                    attempt.setsockopt(*option)
                if self._source:
                    attempt.bind((self._source, 0))
                async with in_time(ATTEMPT_SECONDS):
                    place = (self._server.address, self._server.port)
                    await asyncio.get_running_loop().sock_connect(attempt, place)
                return attempt
            except TimeoutError:
                attempt.close()
                if asyncio.get_running_loop().time() >= until:
                    raise
            except BaseException:
                attempt.close()
                raise


def check_head(head: bytes | bytearray, body: bytes | bytearray) -> None:
    """Raises RefusedError unless an answer that begins so is one of success."""
    first, *lines = head.decode("latin-1").split("\r\n")
    status = int(first.split(" ", 2)[1])
    if status not in (200, 201):
        fields = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
        retry = fields.get("retry-after")
        text = body[:200].decode(errors="replace")
        raise RefusedError(status, text, float(retry) if retry else None)
