"""An HTTP server that is stopped within a second, and lets no address take all of its connections."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.typedefs import Middleware

MOST_BODY_BYTES = 64 * 1024
MOST_CONNECTIONS = 256  # of an address: an agent has two, and where pods share their node's address there are a hundred of them
SHUTDOWN_SECONDS = 0.5


@asynccontextmanager
async def serving(
    routes: Sequence[web.RouteDef],
    host: str,
    port: int,
    *,
    middlewares: Sequence[Middleware] = (),
    tls: ssl.SSLContext | None = None,
    most_connections: int = MOST_CONNECTIONS,
    on_refusal: Callable[[], None] = lambda: None,
) -> AsyncIterator[int]:
    """Serves for as long as the context lasts, then closes all connections.

    Args:
        routes: what is served.
        host: where it listens.
        port: where it listens; 0: on a free one.
        middlewares: around every request.
        tls: what the server shows; None: it speaks plain HTTP.
        most_connections: how many one address may have open; more are closed at once.
        on_refusal: called for each of those.

    Yields:
        The port.
    """
    app = web.Application(client_max_size=MOST_BODY_BYTES, middlewares=middlewares)
    app.add_routes(routes)
    # Cancelling a handler whose client has gone is how a closed long poll is noticed at once.
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    http = runner.server
    assert http is not None  # set up above
    open_: Counter[str] = Counter()

    def accept() -> asyncio.Protocol:
        return _Connection(http(), open_, most_connections, on_refusal)

    try:
        server = await asyncio.get_running_loop().create_server(accept, host, port, ssl=tls, reuse_address=True)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
    finally:
        await runner.cleanup()


class _Connection(asyncio.Protocol):
    """A connection that is counted while it is open, and not let in if its address has too many."""

    def __init__(self, inner: asyncio.Protocol, open_: Counter[str], most: int, on_refusal: Callable[[], None]) -> None:
        self._inner = inner
        self._open = open_
        self._most = most
        self._on_refusal = on_refusal
        self._address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        address = str((transport.get_extra_info("peername") or ("",))[0])
        if self._open[address] >= self._most:
            self._on_refusal()
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
            return
        self._address = address
        self._open[address] += 1
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address:
            self._open[self._address] -= 1
            if not self._open[self._address]:
                del self._open[self._address]
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._address:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._address else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
