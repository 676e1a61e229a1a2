"""The agent's stream to the operator, for ten thousand agents in one process.

The stream is the worker image's elastic_pytorch/operator_link/stream.py, but not its opening, which
waits in a thread. asyncio's streams would take 256 KiB for each TLS connection, and several times
the processor time.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from elastic_pytorch.operator_link.first_connection import ATTEMPT_DELAY_SECONDS
from elastic_pytorch.operator_link.http_connection import (
    CONNECT_TIMEOUT_SECONDS,
    DEAD_PEER_OPTIONS,
    HANDSHAKE_TIMEOUT_SECONDS,
    MAX_PATIENCE,
)
from elastic_pytorch.operator_link.stream import OperatorStream


@dataclass(frozen=True, slots=True)
class Server:
    host: str
    address: str
    port: int
    tls: ssl.SSLContext


@asynccontextmanager
async def in_time(seconds: float) -> AsyncIterator[None]:
    """Raises TimeoutError if the context takes longer.

    Data that arrived in time counts even if this process has not read it yet: with ten thousand
    agents it may be late by seconds, unlike a real agent. So it reads all that it can first.
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
    """Sends and receives lines, from one task and one source address."""

    def __init__(self, server: Server, source: str) -> None:
        self._server, self._source = server, source
        self._socket: socket.socket | None = None
        self._stream: OperatorStream | None = None
        self._ready: asyncio.Future[None] | None = None
        self.patience = 1  # the factor of all times, while the server is too slow

    async def open(self, path: str, token: str) -> None:
        self.close()
        self._socket = await self._connect()
        host = f"{self._server.host}:{self._server.port}"
        self._stream = OperatorStream(self._socket, host, path, token)

    def send(self, fields: Any, token: str) -> None:
        """Sends a line, so small that the kernel takes it whole, or raises OSError."""
        self._opened().send(fields, token)

    async def receive(self, seconds: float) -> list[Any]:
        """Returns lines, or none when the connection is poked or the time is over.

        Raises:
            OSError: the server refuses, has ended the stream, or the connection has failed.
            ValueError: the server has sent no JSON lines.
        """
        stream = self._opened()
        if found := stream.receive():
            return found
        assert self._socket is not None
        timer = asyncio.get_running_loop().call_later(seconds, self.poke)
        try:
            await self._readable(self._socket)
        finally:
            timer.cancel()
        return self._opened().receive()

    def poke(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = self._stream = None
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(ConnectionResetError("closed"))

    def wait_longer(self) -> None:
        self.patience = min(2 * self.patience, MAX_PATIENCE)

    def _opened(self) -> OperatorStream:
        if self._stream is None:
            raise ConnectionResetError("closed")
        return self._stream

    async def _readable(self, opened: socket.socket) -> None:
        self._ready = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(opened, self._wake)
        await self._ready

    def _wake(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)
        elif self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)  # until the next `_readable`

    async def _connect(self) -> socket.socket:
        opened = await self._open()
        try:
            wrapped = self._server.tls.wrap_socket(
                opened, server_hostname=self._server.host, do_handshake_on_connect=False
            )
            self._socket = opened = wrapped
            try:
                async with in_time(HANDSHAKE_TIMEOUT_SECONDS * self.patience):
                    await self._shake_hands(wrapped)
            except (TimeoutError, ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
                self.wait_longer()
                raise
            return wrapped
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
        until = asyncio.get_running_loop().time() + CONNECT_TIMEOUT_SECONDS
        while True:
            attempt = socket.socket()
            try:
                attempt.setblocking(False)
                attempt.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                attempt.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in DEAD_PEER_OPTIONS:
                    attempt.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
                attempt.bind((self._source, 0))
                async with in_time(ATTEMPT_DELAY_SECONDS):
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
