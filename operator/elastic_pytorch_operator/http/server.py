"""An HTTP server that stops within a second, and that unknown clients cannot use up.

Connections are counted before a byte of TLS, and each refusal closes its connection. One on which
no client authenticates is closed with its first answer, and after some seconds in any case.
"""

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from elastic_pytorch_operator.http.connections import Connections, Peer
from elastic_pytorch_operator.http.protocols import Plain, Tls

logger = logging.getLogger(__name__)

# Of a body, of which no more than twice that is read.
BUFFER_BYTES = 4 * 1024
SHUTDOWN_SECONDS = 0.5
# For connections to the API server, probes and metrics.
OWN_FILES = 256
BACKLOG = 1024  # connections that the kernel keeps while the event loop is busy
MAX_ACCEPTED_AT_ONCE = 256
# Connections, or steps of handshakes, in one turn of the event loop: each takes a millisecond.
MAX_BEGUN_AT_ONCE = 8
# About as many connections as are served in the two seconds that agents wait for a handshake. The
# newest has its turn first: clients of the oldest are about to give up and come again.
MAX_WAITING = 512
NO_DESCRIPTORS_SECONDS = 1.0  # a pause when the process may open no more files
TCP_ESTABLISHED = 1  # the first byte of Linux' struct tcp_info is the state (netinet/tcp.h)
IDLE_SECONDS = 75.0  # between two requests of a known client
# The kernel closes a connection whose peer has acknowledged nothing for a minute.
LOST_PEER_OPTIONS = (
    ("TCP_USER_TIMEOUT", 60_000),
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
)
LINGER_SECONDS = 1.0  # for the rest of a request that was answered before it was complete


class _OwnFaults(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        faults_of_clients = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
        return not (record.exc_info and isinstance(record.exc_info[1], faults_of_clients))


requests_logger = logging.getLogger(f"{__name__}.requests")
requests_logger.addFilter(_OwnFaults())


@asynccontextmanager
async def serving(
    routes: Sequence[web.RouteDef],
    host: str,
    port: int,
    *,
    middlewares: Sequence[Middleware] = (),
    tls: ssl.SSLContext | None = None,
    connections: Connections | None = None,
    on_refusal: Callable[[str, str], None] = lambda *_: None,
    on_overload: Callable[[], None] = lambda: None,
) -> AsyncIterator[int]:
    """Serves while the context lasts, then closes all connections; yields the port.

    Args:
        host: `::` is every address, of IPv6 and IPv4, as far as the kernel has them.
        on_refusal: takes the reason and the address of each connection that is refused, or closed
            because no client has authenticated on it.
        on_overload: called when more connections come than can be served at once.
    """
    gate = _Gate(connections or Connections(), on_refusal, on_overload)
    app = web.Application(middlewares=[gate.dismiss, *middlewares])
    app[GATE] = gate
    app.add_routes(routes)
    # Cancelling a handler whose client has gone shows a closed connection at once.
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=SHUTDOWN_SECONDS,
        keepalive_timeout=IDLE_SECONDS,
        lingering_time=LINGER_SECONDS,
        read_bufsize=BUFFER_BYTES,
        auto_decompress=False,  # a few bytes may become megabytes
        logger=requests_logger,
    )
    await runner.setup()
    http = runner.server
    assert http is not None
    try:
        with _listening_socket(host, port) as listening:
            gate.listen(
                listening,
                lambda closed: (
                    Tls(http(), tls, closed, gate.take_step) if tls else Plain(http(), closed)
                ),
            )
            try:
                yield listening.getsockname()[1]
            finally:
                await gate.close()
                gate.abort_all()  # requests that are held end at once
    finally:
        await runner.cleanup()


def authenticate(request: web.Request, client: Hashable) -> None:
    request.app[GATE].authenticate(peer_of(request), client)


def client_of(request: web.Request) -> Hashable | None:
    return request.app[GATE].connections.client_of(peer_of(request))


def peer_of(request: web.Request) -> Peer:
    """Where a request comes from; an empty address if its connection is closed."""
    return _as_peer(request.get_extra_info("peername") or ("", 0))


def bound_address(host: str, *, has_ipv6: bool) -> str:
    return "0.0.0.0" if host == "::" and not has_ipv6 else host


def _listening_socket(host: str, port: int) -> socket.socket:
    host = bound_address(host, has_ipv6=socket.has_dualstack_ipv6())
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server(
        (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=host == "::"
    )


def _as_peer(name: Sequence[Any]) -> Peer:
    """IPv4 addresses are as pods have them, also on a socket of both families."""
    return str(name[0]).removeprefix("::ffff:"), int(name[1])


def _was_given_up(link: socket.socket) -> bool:
    option = getattr(socket, "TCP_INFO", None)
    return (
        option is not None and link.getsockopt(socket.IPPROTO_TCP, option, 1)[0] != TCP_ESTABLISHED
    )


def _notice_lost_peer(link: socket.socket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in LOST_PEER_OPTIONS:
        if hasattr(socket, option):
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


@dataclass(frozen=True, slots=True)
class _Link:
    transport: asyncio.Transport
    deadline: asyncio.TimerHandle


class _Gate:
    def __init__(
        self,
        connections: Connections,
        on_refusal: Callable[[str, str], None],
        on_overload: Callable[[], None],
    ) -> None:
        self.connections = connections
        connections.displace = self._abort
        self._on_refusal = on_refusal
        self._on_overload = on_overload
        self._sockets: dict[Peer, socket.socket] = {}
        self._links: dict[Peer, _Link] = {}
        self._arrivals: deque[tuple[socket.socket, Peer]] = deque()
        self._steps: deque[Callable[[], None]] = deque()
        self._serving = False
        self._accepting: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def listen(
        self,
        listening: socket.socket,
        protocol: Callable[[Callable[[], None]], asyncio.BaseProtocol],
    ) -> None:
        """Accepts connections until `close`; each `protocol` calls its argument at its end."""
        listening.setblocking(False)
        self._listening, self._protocol = listening, protocol
        self._resume()

    async def close(self) -> None:
        self._loop.remove_reader(self._listening)
        if self._pause is not None:
            self._pause.cancel()
        while self._arrivals:
            self._turn_away(*self._arrivals.pop())
        if self._accepting:
            await asyncio.wait(self._accepting)

    def abort_all(self) -> None:
        """Also connections within handshakes, which no HTTP server knows."""
        for link in list(self._links.values()):
            link.transport.abort()

    def authenticate(self, peer: Peer, client: Hashable) -> None:
        oldest = self.connections.authenticate(peer, client)
        if peer in self._links:
            self._links[peer].deadline.cancel()
        if oldest is not None:
            self._abort(oldest)

    @web.middleware
    async def dismiss(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Closes the connection with a refusal, or with any answer to an unknown client."""
        # Pipelined requests: each has its own turn of the event loop.
        await asyncio.sleep(0)
        try:
            answer = await handler(request)
        except web.HTTPException as refusal:
            refusal.force_close()
            raise
        if client_of(request) is None:
            answer.force_close()
        return answer

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTED_AT_ONCE):
            try:
                link, name = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError as error:
                logger.error("cannot accept connections: %s", error)
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(NO_DESCRIPTORS_SECONDS, self._resume)
                break
            peer = _as_peer(name)
            self._forget(peer)  # the end of the one before it on this port may come later
            if refusal := self.connections.open(peer, time.monotonic()):
                link.close()
                self._on_refusal(refusal, peer[0])
                continue
            self._sockets[peer] = link
            self._arrivals.append((link, peer))
            if len(self._arrivals) > MAX_WAITING:
                oldest = self._arrivals.popleft()
                self._turn_away(*oldest)
                self._on_refusal("crowd", oldest[1][0])
        if not self._serving:
            self._serve()

    def take_step(self, step: Callable[[], None]) -> None:
        self._steps.append(step)
        if not self._serving:
            self._serve()

    def _serve(self) -> None:
        self._serving = bool(self._steps or self._arrivals)
        if not self._serving:
            return
        self._loop.call_soon(self._serve)
        begun = 0
        while begun < MAX_BEGUN_AT_ONCE and (self._steps or self._arrivals):
            if self._steps:
                self._steps.popleft()()
            else:
                link, peer = self._arrivals.pop()
                if self._sockets.get(peer) is not link or _was_given_up(link):
                    self._turn_away(link, peer)
                    continue
                link.setblocking(False)
                _notice_lost_peer(link)
                task = self._loop.create_task(self._connect(link, peer))
                self._accepting.add(task)
                task.add_done_callback(self._accepting.discard)
            begun += 1
        if self._steps or self._arrivals:
            self._on_overload()

    def _turn_away(self, link: socket.socket, peer: Peer) -> None:
        link.close()
        self._end(link, peer)

    def _resume(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    async def _connect(self, link: socket.socket, peer: Peer) -> None:
        transport, _ = await self._loop.connect_accepted_socket(
            lambda: self._protocol(lambda: self._end(link, peer)), link
        )
        if self._sockets.get(peer) is not link:
            transport.abort()
            return
        deadline = self._loop.call_later(
            self.connections.limits.authentication_seconds, self._give_up, peer
        )
        self._links[peer] = _Link(transport, deadline)

    def _give_up(self, peer: Peer) -> None:
        self._on_refusal("timeout", peer[0])
        self._abort(peer)

    def _abort(self, peer: Peer) -> None:
        if link := self._links.get(peer):
            link.transport.abort()
        else:  # its turn has not come yet
            self._sockets.pop(peer, None)

    def _end(self, link: socket.socket, peer: Peer) -> None:
        if self._sockets.get(peer) is link:
            self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        self._sockets.pop(peer, None)
        self.connections.close(peer)
        if link := self._links.pop(peer, None):
            link.deadline.cancel()


GATE = web.AppKey("gate", _Gate)


def raise_limit() -> None:
    """Container runtimes start processes with as few as 1024 open files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def most_connections() -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, most - OWN_FILES)
