"""A real server without TLS: whom it answers, in which order, and how it ends."""

import asyncio
import socket
import struct

import aiohttp
import pytest
from aiohttp import web
from elastic_pytorch_operator.http import server as server_module
from elastic_pytorch_operator.http.connections import ConnectionLimits, Connections
from elastic_pytorch_operator.http.server import bound_address, peer_of, serving

from tests.situations import situations

pytestmark = pytest.mark.process


async def test_newest_of_a_crowd_have_their_turn_first() -> None:
    few, begun = server_module.MAX_BEGUN_AT_ONCE, list[int]()

    async def note(request: web.Request) -> web.Response:
        begun.append(int(request.query["number"]))
        return web.Response()

    async with serving([web.get("/", note)], "127.0.0.1", 0) as port:
        links = []
        for number in range(3 * few):  # all at once for the server, whose event loop is this one
            links.append(socket.create_connection(("127.0.0.1", port)))
            links[-1].sendall(f"GET /?number={number} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        async with asyncio.timeout(20):
            while len(begun) < len(links):
                await asyncio.sleep(0.01)
        for link in links:
            link.close()
    turns = [sorted(begun[first : first + few]) for first in range(0, 3 * few, few)]
    assert turns == [list(range(first, first + few)) for first in (2 * few, few, 0)]


async def test_connection_counts_also_on_a_port_whose_last_end_is_not_told_yet() -> None:
    refused: list[str] = []
    limits = Connections(ConnectionLimits(per_address=2))
    async with serving(
        [], "127.0.0.1", 0, connections=limits, on_refusal=lambda why, _: refused.append(why)
    ) as port:

        async def connect(own: int = 0) -> socket.socket:
            link = socket.socket()
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            link.bind(("127.0.0.1", own))
            link.connect(("127.0.0.1", port))
            if not own:
                await asyncio.sleep(0.1)
            return link

        first = await connect()
        own = first.getsockname()[1]
        first.close()  # by a reset, which the server's event loop, this one, sees with the next one
        links = [await connect(own)]
        await asyncio.sleep(0.1)
        links += [await connect(), await connect()]
        assert refused == ["address"]
        for link in links:
            link.close()


async def test_those_that_give_way_are_closed_although_their_turn_has_not_come() -> None:
    limits = Connections(ConnectionLimits(per_address=4, newest_first=True))

    def is_open(link: socket.socket) -> bool:
        try:
            return bool(link.recv(1, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except ConnectionError:
            return False

    async with serving([], "127.0.0.1", 0, connections=limits) as port:
        links = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        await asyncio.sleep(0.5)
        assert [is_open(link) for link in links] == [False] * 16 + [True] * 4
        for link in links:
            link.close()


@pytest.mark.parametrize(
    ("host", "url", "seen"),
    [
        ("127.0.0.1", "http://127.0.0.1", "127.0.0.1"),
        ("::", "http://127.0.0.1", "127.0.0.1"),
        ("::", "http://[::1]", "::1"),
        ("::1", "http://[::1]", "::1"),
    ],
)
async def test_server_listens_on_both_families_and_knows_its_peers_by_the_names_of_pods(
    host: str, url: str, seen: str
) -> None:
    async def tell(request: web.Request) -> web.Response:
        return web.Response(text=peer_of(request)[0])

    if "::1" in url and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    async with (
        serving([web.get("/", tell)], host, 0) as port,
        aiohttp.ClientSession() as session,
        session.get(f"{url}:{port}/") as answer,
    ):
        assert await answer.text() == seen


@pytest.mark.parametrize(
    ("host", "has_ipv6", "bound"),
    [
        ("::", True, "::"),
        ("::", False, "0.0.0.0"),
        ("127.0.0.1", False, "127.0.0.1"),
        ("::1", True, "::1"),
    ],
)
def test_server_makes_do_with_ipv4_where_the_kernel_has_no_ipv6(
    host: str, has_ipv6: bool, bound: str
) -> None:
    assert bound_address(host, has_ipv6=has_ipv6) == bound


async def test_requests_that_are_held_end_with_the_server_at_once_and_silently(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A leader that has lost its lease has a stream of each agent open."""
    monkeypatch.setattr(server_module, "SHUTDOWN_SECONDS", 60.0)
    held, ended = [], []

    async def hold(_: web.Request) -> web.Response:
        held.append(True)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return web.Response()

    async with asyncio.timeout(30):
        async with serving([web.get("/", hold)], "127.0.0.1", 0) as port:
            streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
            for _, writer in streams:
                writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            while len(held) < len(streams):
                await asyncio.sleep(0.01)
        for _, writer in streams:
            writer.close()
    assert len(ended) == len(streams)
    assert caplog.messages == []


@situations(
    "sent",
    {
        "no HTTP": b"no HTTP\r\n\r\n",
        "a long line": b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\n\r\n",
        "no chunk": b"POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"no number\r\n",
    },
)
async def test_what_is_no_http_is_refused_and_not_logged(
    caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    async def read(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async with serving([web.post("/read", read)], "127.0.0.1", 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(10):
            assert (await reader.read()).startswith(
                (b"HTTP/1.0 400 ", b"HTTP/1.1 400 ", b"HTTP/1.1 500 ")
            )
        writer.close()
    assert not caplog.messages


async def test_fault_of_a_handler_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: web.Request) -> web.Response:
        raise KeyError("a fault of ours")

    async with (
        serving([web.get("/", fail)], "127.0.0.1", 0) as port,
        aiohttp.ClientSession() as session,
    ):
        assert (await session.get(f"http://127.0.0.1:{port}/")).status == 500
    assert "a fault of ours" in caplog.text
