"""What is between a connection and the HTTP server: TLS or nothing."""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol, SSLProtocolState
from collections.abc import Callable
from functools import partial

READ_BYTES = 2 * 1024  # from a connection in one turn of the event loop: more than a heartbeat
HANDSHAKE_SECONDS = 5
GOODBYE_SECONDS = 1


class Tls(SSLProtocol):
    """asyncio's TLS with shorter times, and 2 KiB of buffer for a connection instead of 256.

    `take_step` takes each step of a handshake, which costs up to a millisecond, in its turn.
    """

    max_size = READ_BYTES

    def __init__(
        self,
        inner: asyncio.Protocol,
        context: ssl.SSLContext,
        on_close: Callable[[], None],
        take_step: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            inner,
            context,
            None,  # type: ignore[arg-type]  # nothing waits for the end of the handshake
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=GOODBYE_SECONDS,
        )
        self._on_close = on_close
        self._take_step = take_step
        self._link: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._link = transport
        super().connection_made(transport)

    def buffer_updated(self, nbytes: int) -> None:
        if self._link is None or self._state is not SSLProtocolState.DO_HANDSHAKE:  # type: ignore[attr-defined]
            super().buffer_updated(nbytes)
            return
        self._link.pause_reading()
        self._take_step(partial(self._shake_hands, nbytes))

    def _shake_hands(self, nbytes: int) -> None:
        if self._link is not None:
            self._link.resume_reading()
            super().buffer_updated(nbytes)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._link = None
        super().connection_lost(exc)
        self._on_close()


class Plain(asyncio.BufferedProtocol):
    def __init__(self, inner: asyncio.Protocol, on_close: Callable[[], None]) -> None:
        self._inner = inner
        self._on_close = on_close
        self._received = bytearray(READ_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)
        self._on_close()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.data_received(bytes(memoryview(self._received)[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
