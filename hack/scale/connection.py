"""One HTTP connection that is kept open, cheap enough for ten thousand in a process.

It works on the socket itself: asyncio's streams take 256 KiB for each TLS connection, and several times the processor time. What it
does when the operator does not answer is what worker_image/elastic_pytorch/operator_link/http_connection.py does.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
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
    """Sends one request at a time.

    Args:
        server: to which.
        timeout_seconds: for an answer.
        source: the address that it comes from; empty: the machine's own.

    Attributes:
        patience: by how much times are longer than usual, as the server is too slow.
    """

    def __init__(self, server: Server, timeout_seconds: float, source: str = "") -> None:
        self._server, self._timeout, self._source = server, timeout_seconds, source
        self._socket: socket.socket | None = None
        self._ready: asyncio.Future[None] | None = None
        self._busy = self._streams = False
        self.patience = 1

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: object = None) -> bytes:
        """Returns the body of the answer.

        Raises:
            RefusedError: the server refuses.
            OSError: there was no answer.
        """
        content = b"" if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json", "Content-Length": str(len(content))} if content else {}
        message = self.head(method, path, {"Accept": "application/json", **headers, **kind}) + content
        fresh, self._busy = self._socket is None, True
        try:
            try:
                answer = await self._exchange(message)
            except ConnectionError:
                if fresh:
                    raise
                self.close()  # the server has closed an idle connection
                answer = await self._exchange(message)
            self.patience = 1
            return answer
        except RefusedError:
            self.patience = 1
            raise
        except BaseException:
            self.close()
            raise
        finally:
            self._busy = False

    def head(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        """The head of a request."""
        fields = {"Host": f"{self._server.host}:{self._server.port}", "Accept-Encoding": "identity", **headers}
        return (f"{method} {path} HTTP/1.1\r\n" + "".join(f"{n}: {v}\r\n" for n, v in fields.items()) + "\r\n").encode()

    async def connect(self) -> None:
        """Opens the connection, for what is not a single request.

        Raises:
            OSError: there is none.
        """
        self.close()
        await self._connect()
        self._streams = True

    def send(self, message: bytes) -> None:
        """Sends something so small that the kernel takes it whole.

        Raises:
            OSError: the connection is closed, or full.
        """
        if self._socket is None:
            raise ConnectionResetError("closed")
        self._socket.sendall(message)

    async def receive_within(self, seconds: float) -> bytes:
        """What has come, or comes next; empty: nothing came within the time, or before `poke`.

        Raises:
            OSError: the connection has ended.
        """
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
                self._ready = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().add_reader(self._socket, self._wake)
                timer = asyncio.get_running_loop().call_later(seconds, self.poke)
                await self._ready
        finally:
            if timer is not None:
                timer.cancel()

    def poke(self) -> None:
        """Ends the current `receive_within`."""
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def check_head(self, head: bytes | bytearray, body: bytes | bytearray) -> None:
        """Raises RefusedError unless an answer that begins so is one of success."""
        status, fields = _read_head(head)
        if status not in (200, 201):
            retry = fields.get("retry-after")
            raise RefusedError(status, body[:200].decode(errors="replace"), float(retry) if retry else None)

    def close(self) -> None:
        """Closes the connection; a request that waits fails, the next one opens another."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(ConnectionResetError("closed"))

    async def _exchange(self, message: bytes) -> bytes:
        if self._socket is None:
            await self._connect()
        try:
            async with in_time(self._timeout * self.patience):
                return await self._converse(message)
        except TimeoutError:
            self.wait_longer()
            raise

    async def _converse(self, message: bytes) -> bytes:
        await self._when_ready(lambda opened: opened.sendall(message))  # so small that the kernel takes it whole
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += await self._receive()
        _, fields = _read_head(received[:end])
        body = received[end + 4 :]
        if fields.get("transfer-encoding", "").lower() == "chunked":
            while not body.endswith(b"0\r\n\r\n"):
                body += await self._receive()
            body = _join_chunks(body)
        else:
            while len(body) < int(fields.get("content-length", "0")):
                body += await self._receive()
        if fields.get("connection", "").lower() == "close":
            self.close()
        self.check_head(received[:end], body)
        return bytes(body)

    async def _receive(self) -> bytes:
        found: bytes = await self._when_ready(lambda opened: opened.recv(CHUNK_BYTES))
        if not found:
            raise ConnectionResetError("the server has closed the connection")
        return found

    async def _when_ready(self, operate: Callable[[Any], T]) -> T:
        while True:
            if self._socket is None:
                raise ConnectionResetError("closed")
            try:
                return operate(self._socket)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._ready = asyncio.get_running_loop().create_future()
                await self._ready

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)
        elif self._socket is not None and self._streams:
            asyncio.get_running_loop().remove_reader(self._socket)  # until it is wanted
        elif self._socket is not None:
            try:  # while no request waits, nothing is to be read but the end, and what TLS itself sends
                ended = not self._socket.recv(CHUNK_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            except OSError:
                ended = True
            if ended:
                self.close()

    async def _connect(self) -> None:
        opened = await self._open()
        loop = asyncio.get_running_loop()
        try:
            if self._server.tls is not None:
                opened = self._server.tls.wrap_socket(opened, server_hostname=self._server.host, do_handshake_on_connect=False)
            self._socket = opened
            loop.add_reader(opened, self._wake)
            if self._server.tls is not None:
                try:
                    async with in_time(HANDSHAKE_SECONDS * self.patience):
                        await self._when_ready(lambda opened: opened.do_handshake())
                except (TimeoutError, ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
                    self.wait_longer()
                    raise
        except BaseException:
            self.close()
            opened.close()
            raise

    def wait_longer(self) -> None:
        """Takes note that the server is too slow."""
        self.patience = min(2 * self.patience, MAX_PATIENCE)

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
                    await asyncio.get_running_loop().sock_connect(attempt, (self._server.address, self._server.port))
                return attempt
            except TimeoutError:
                attempt.close()
                if asyncio.get_running_loop().time() >= until:
                    raise
            except BaseException:
                attempt.close()
                raise


def _read_head(head: bytes | bytearray) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    return int(first.split(" ", 2)[1]), {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}


def _join_chunks(body: bytearray) -> bytearray:
    joined, at = bytearray(), 0
    while size := int(body[at : (begin := body.index(b"\r\n", at))], 16):
        joined += body[begin + 2 : begin + 2 + size]
        at = begin + 4 + size
    return joined
