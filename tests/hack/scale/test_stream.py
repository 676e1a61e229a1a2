"""The load generator's streams, to a server that is real and small. test_generator.py has the operator's own."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from scale.connection import Connection, RefusedError, Server
from scale.stream import Stream


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/busy":
            return web.json_response({"error": "too many"}, status=429, headers={"Retry-After": "3"})
        told = web.StreamResponse()
        await told.prepare(request)
        while line := await request.content.readline():
            if json.loads(line) == "end":
                break
            for part in (b'{"heard": ', line.strip(), b"}\n"):
                await told.write(part)
                await asyncio.sleep(0)
        return told

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Server("operator", "127.0.0.1", runner.addresses[0][1])
    await runner.cleanup()


async def lines(stream: Stream) -> list[dict[str, object]]:
    async with asyncio.timeout(20):
        while not (found := await stream.receive(20)):
            pass
    return found


async def test_lines_go_both_ways_until_the_server_ends_the_stream(server: Server) -> None:
    stream = Stream(connection := Connection(server, 20.0), "/a", {"Authorization": "Bearer x"})
    await stream.open()
    for number in (1, 2):
        stream.send(number)
        assert await lines(stream) == [{"heard": number}]
    assert await stream.receive(0.05) == []
    asyncio.get_running_loop().call_later(0.05, connection.poke)
    assert await stream.receive(20) == []
    stream.send("end")
    with pytest.raises(ConnectionResetError):
        await lines(stream)
    connection.close()


async def test_refusal_says_when_to_come_again(server: Server) -> None:
    stream = Stream(connection := Connection(server, 20.0), "/busy", {})
    await stream.open()
    stream.send(1)
    with pytest.raises(RefusedError) as refused:
        await lines(stream)
    assert (refused.value.status, refused.value.retry_seconds) == (429, 3.0)
    connection.close()
