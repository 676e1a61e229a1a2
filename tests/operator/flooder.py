"""Pods that send to the operator's server as much as it takes, in a process of their own."""

import selectors
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

BEAT = b'{"incarnation":"a","state":"ready","round":0}'
BLOCK_BYTES = 60_000


@dataclass
class _Sender:
    opening: bytes
    block: bytes
    left: bytes = b""


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def stream_opening(token: str) -> bytes:
    """Begins a stream with a heartbeat."""
    head = (
        f"POST /v1/agent HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    return head.encode() + chunk(BEAT + b"\n")


def many(piece: bytes) -> bytes:
    """As many of a piece as are sent at once."""
    return piece * max(1, BLOCK_BYTES // len(piece))


def flood(port: int, senders: Sequence[tuple[bytes, bytes]], seconds: float) -> None:
    """Sends on a connection each; those that are closed are opened again.

    Args:
        port: of the server.
        senders: what each sends first on a connection, and what it then repeats.
        seconds: for how long.
    """
    selector, end = selectors.DefaultSelector(), time.monotonic() + seconds

    def connect(opening: bytes, block: bytes) -> None:
        link = socket.create_connection(("127.0.0.1", port))
        link.setblocking(False)
        selector.register(
            link, selectors.EVENT_READ | selectors.EVENT_WRITE, _Sender(opening, block, opening)
        )

    for opening, block in senders:
        connect(opening, block)
    while time.monotonic() < end:
        for key, events in selector.select(0.1):
            link, sender = key.fileobj, key.data
            assert isinstance(link, socket.socket)
            try:
                if events & selectors.EVENT_READ and not link.recv(1 << 20):
                    raise ConnectionResetError
                if events & selectors.EVENT_WRITE:
                    sender.left = sender.left or sender.block
                    sender.left = sender.left[link.send(sender.left) :]
            except BlockingIOError:
                continue
            except OSError:
                selector.unregister(link)
                link.close()
                connect(sender.opening, sender.block)


def begin_handshakes(port: int, address: str, connections: int) -> None:
    """Opens many connections from an address, and begins a TLS handshake on all at once."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    hello = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), hello).do_handshake()
    beginning = hello.read()
    links = [
        socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
        for _ in range(connections)
    ]
    time.sleep(0.5)  # the server has taken all in
    for link in links:
        link.send(beginning)
    for link in links:
        link.settimeout(30)
        assert link.recv(1)
    for link in links:
        link.close()
        time.sleep(0.002)
