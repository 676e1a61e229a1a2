"""The load generator's connections, to a server that is real and small. test_generator.py adds TLS."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from scale.connection import Connection, RefusedError, Server, in_time

pytestmark = pytest.mark.process


class Peer:
    """Answers, and counts connections by the address that they come from."""

    def __init__(self) -> None:
        self.peers: set[tuple[str, int]] = set()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.peers.add(request.transport.get_extra_info("peername"))  # type: ignore[union-attr]
        if request.path == "/busy":
            return web.json_response({"error": "too many"}, status=429, headers={"Retry-After": "3"})
        if request.path == "/slow":
            await asyncio.sleep(60)
        answer = web.json_response({"path": request.path_qs, "body": await request.text(), "padding": "x" * 200_000})
        if request.path == "/chunks":
            answer.enable_chunked_encoding()
        if request.path == "/last":
            answer.force_close()
        return answer


@pytest.fixture
async def peer() -> AsyncIterator[tuple[Peer, Any]]:
    peer = Peer()
    runner = web.ServerRunner(web.Server(peer.answer, keepalive_timeout=0.2), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield peer, Server("operator", "127.0.0.1", runner.addresses[0][1])
    await runner.cleanup()


async def test_requests_share_a_connection_from_an_address_of_its_own(peer: tuple[Peer, Server]) -> None:
    connection = Connection(peer[1], 20.0, "127.7.0.1")
    for path in ("/a", "/b?x=1"):
        assert path.encode() in await connection.request("POST", path, {"Authorization": "Bearer x"}, {"state": "ready"})
    assert [address for address, _ in peer[0].peers] == ["127.7.0.1"]
    connection.close()


async def test_connection_that_the_server_has_closed_is_opened_again(peer: tuple[Peer, Server]) -> None:
    connection = Connection(peer[1], 20.0)
    await connection.request("GET", "/last", {})
    await connection.request("GET", "/a", {})
    await asyncio.sleep(1.0)  # it is closed as idle
    await connection.request("GET", "/a", {})
    assert len(peer[0].peers) == 3
    connection.close()


async def test_answer_in_chunks(peer: tuple[Peer, Server]) -> None:
    connection = Connection(peer[1], 20.0)
    whole, chunks = [json.loads(await connection.request("GET", path, {})) for path in ("/a", "/chunks")]
    assert whole | {"path": "/chunks"} == chunks
    connection.close()


async def test_refusal_says_when_to_come_again(peer: tuple[Peer, Server]) -> None:
    connection = Connection(peer[1], 20.0)
    with pytest.raises(RefusedError) as refused:
        await connection.request("GET", "/busy", {})
    assert (refused.value.status, refused.value.retry_seconds) == (429, 3.0)
    connection.close()


async def test_request_without_answer_fails(peer: tuple[Peer, Server]) -> None:
    connection = Connection(peer[1], 0.2)
    with pytest.raises(TimeoutError):
        await connection.request("GET", "/slow", {})
    waiting = asyncio.create_task(Connection.request(connection := Connection(peer[1], 20.0), "GET", "/slow", {}))
    await asyncio.sleep(0.1)
    connection.close()
    with pytest.raises(ConnectionResetError):
        await waiting


async def test_nothing_listens() -> None:
    with pytest.raises(ConnectionRefusedError):
        await Connection(Server("operator", "127.0.0.1", 1), 5.0).request("GET", "/", {})


async def test_answer_that_has_come_in_time_counts_although_the_process_was_late() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        async with in_time(0.05):
            reading = asyncio.create_task(asyncio.get_running_loop().sock_recv(near, 10))
            await asyncio.sleep(0)
            far.send(b"answer")
            time.sleep(0.2)  # noqa: ASYNC251  the process is late
            assert await reading == b"answer"


async def test_answer_that_does_not_come_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        async with in_time(0.05):
            await asyncio.Event().wait()
