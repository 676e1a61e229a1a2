"""What strangers are refused by a real server over TLS, and what agents get meanwhile.

Each has an address of its own in 127.0.0.0/8.
"""

import asyncio
import json
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from elastic_pytorch_operator.agents.http_api import AgentApi
from elastic_pytorch_operator.http import protocols
from elastic_pytorch_operator.http import server as server_module
from elastic_pytorch_operator.http.connections import MAX_PER_CLIENT, ConnectionLimits
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues

from tests.operator.agents_server import (
    OTHER_STRANGER,
    STRANGER,
    WORKERS,
    AgentsServer,
    serving_agents,
)
from tests.operator.flooder import chunk, stream_opening
from tests.situations import situations

pytestmark = pytest.mark.process

BEAT = {"incarnation": "a", "state": "ready", "round": 0}
HALF_A_REQUEST = b"POST /v1/agent HTTP/1.1\r\nHost: "
CLIENT_HELLO_BEGINS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def agent(server: AgentsServer, index: int = 0) -> AsyncIterator[aiohttp.ClientSession]:
    tls = ssl.create_default_context(cadata=server.authorities)
    connector = aiohttp.TCPConnector(local_addr=(WORKERS[index], 0), ssl=tls)
    headers = {"Authorization": f"Bearer {server.tokens[index]}"}
    async with aiohttp.ClientSession(
        f"https://localhost:{server.port}", connector=connector, headers=headers
    ) as session:
        yield session


async def beat(session: aiohttp.ClientSession) -> int:
    async with session.post("/v1/agent", data=json.dumps(BEAT)) as answer:
        assert answer.status != 200 or b"heartbeat" in await answer.read()
        return answer.status


async def connect(server: AgentsServer, address: str, *, tls: bool = False) -> Stream:
    context = ssl.create_default_context(cadata=server.authorities) if tls else None
    return await asyncio.open_connection(
        "127.0.0.1",
        server.port,
        local_addr=(address, 0),
        ssl=context,
        server_hostname="localhost" if tls else None,
    )


async def is_closed(stream: Stream, seconds: float) -> bool:
    """Whether the server closes a connection within so many seconds, without a word."""
    try:
        async with asyncio.timeout(seconds):
            return not await stream[0].read(1)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


async def ask(stream: Stream, token: str) -> int:
    """The answer to a heartbeat that is sent on a request of its own."""
    return await send(stream, stream_opening(token) + chunk(b""))


async def send(stream: Stream, request: bytes) -> int:
    """The status of the answer to a request, or to its heartbeat."""
    reader, writer = stream
    writer.write(request)
    async with asyncio.timeout(10):
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            await reader.readexactly(int(answer.lower().split(b"content-length: ")[1].split()[0]))
            return int(answer.split()[1])
        told = await reader.readuntil(b"\r\n0\r\n\r\n")
    refused = re.search(rb'"refused": {"status": (\d+)', told)
    return int(refused[1]) if refused else 200


def refused(api: AgentApi) -> dict[str, float]:
    lines = api.metrics.render(GaugeValues()).decode().splitlines()
    found = (
        line.split()
        for line in lines
        if line.startswith("elastic_pytorch_connections_refused_total{")
    )
    return {name.split('"')[1]: float(count) for name, count in found if float(count)}


async def test_address_with_too_many_connections_gets_no_more() -> None:
    async with (
        serving_agents(ConnectionLimits(per_address=3)) as (server, api),
        agent(server) as known,
    ):
        kept = [await connect(server, STRANGER) for _ in range(3)]
        kept[1][1].write(CLIENT_HELLO_BEGINS)
        assert await is_closed(await connect(server, STRANGER), 10), "before a byte of TLS"
        assert refused(api) == {"address": 1}
        assert await beat(known) == 200
        _, other = await connect(server, OTHER_STRANGER, tls=True)
        other.close()
        kept[0][1].close()
        async with asyncio.timeout(10):
            while await is_closed(last := await connect(server, STRANGER), 0.2):
                last[1].close()
                await asyncio.sleep(0.05)
        for _, writer in (*kept, last):
            writer.close()


async def test_at_the_total_cap_agents_still_get_in() -> None:
    async with serving_agents(ConnectionLimits(per_address=10, total=10, reserved=2)) as (
        server,
        api,
    ):
        kept = [await connect(server, STRANGER) for _ in range(10)]
        assert await is_closed(await connect(server, OTHER_STRANGER), 10)
        assert refused(api) == {"total": 1}
        for index in range(3):
            async with agent(server, index) as known:
                assert await beat(known) == 200
        async with agent(server) as before:
            assert await beat(before) == 200
            kept += [await connect(server, WORKERS[1]) for _ in range(2)]
            assert await is_closed(await connect(server, WORKERS[1]), 10), (
                "who are strangers there, too"
            )
            assert await beat(before) == 200
        for _, writer in kept:
            writer.close()


async def test_process_that_may_open_no_more_files_serves_the_agents_that_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        serving_agents(ConnectionLimits(open=2)) as (server, api),
        agent(server) as first,
        agent(server, 1) as second,
    ):
        assert [await beat(first), await beat(second)] == [200, 200]
        for _ in range(2):
            assert await is_closed(await connect(server, WORKERS[2]), 10), "before a byte of TLS"
        assert refused(api) == {"files": 2}
        assert [await beat(first), await beat(second)] == [200, 200]
    assert [text for text in caplog.messages if "limit of open files" in text] == caplog.messages[
        :1
    ]


async def test_handshake_that_is_not_finished_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "HANDSHAKE_SECONDS", 1)
    async with serving_agents() as (server, _), agent(server) as known:
        silent, begun = await connect(server, STRANGER), await connect(server, STRANGER)
        begun[1].write(CLIENT_HELLO_BEGINS)
        for stream in (silent, begun):
            assert await is_closed(stream, 10)
            stream[1].close()
        assert await beat(known) == 200


async def test_request_that_does_not_come_is_given_up_and_streams_are_not() -> None:
    limits = ConnectionLimits(authentication_seconds=1.5)
    async with serving_agents(limits) as (server, api):
        reader, writer = await connect(server, WORKERS[0], tls=True)
        writer.write(stream_opening(server.tokens[0]))
        async with asyncio.timeout(10):
            await reader.readuntil(b"heartbeat")
        silent = await connect(server, STRANGER, tls=True)
        slow = await connect(server, STRANGER, tls=True)
        slow[1].write(HALF_A_REQUEST)
        began = time.monotonic()
        for stream in (silent, slow):
            assert await is_closed(stream, 20)
            stream[1].close()
        assert time.monotonic() - began > 0.5
        assert refused(api) == {"timeout": 2}
        writer.write(chunk(json.dumps(BEAT).encode() + b"\n"))
        async with asyncio.timeout(10):
            await reader.readuntil(b"heartbeat")
        writer.close()


@pytest.mark.parametrize(
    ("request_line", "token", "status"),
    [
        ("POST /v1/agent", "", 401),
        ("POST /v1/agent", "forged", 401),
        ("POST /v1/agent", "\udcff", 401),
        ("GET /healthz", "", 404),
        ("GET /v1/agent", "", 405),
    ],
)
async def test_who_is_not_known_has_one_request_a_connection(
    request_line: str, token: str, status: int
) -> None:
    async with serving_agents() as (server, _):
        reader, writer = await connect(server, STRANGER, tls=True)
        request = (
            f"{request_line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n".encode(
                errors="surrogateescape"
            )
        )
        writer.write(request * 10)
        async with asyncio.timeout(10):
            answer = await reader.read()
        assert answer.count(b"HTTP/1.1") == 1
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        writer.close()


async def test_requests_that_come_in_parts_over_many_connections_are_not_mixed_up() -> None:
    async with serving_agents() as (server, _):
        streams = [
            await connect(server, WORKERS[index], tls=True)
            for index in range(len(WORKERS))
            for _ in range(4)
        ]
        requests = []
        for number in range(len(streams)):
            body = json.dumps({**BEAT, "incarnation": f"{number}-" + "x" * 2000})
            head = (
                "POST /v1/agent HTTP/1.1\r\nHost: a\r\nAuthorization: "
                f"Bearer {server.tokens[number // 4]}\r\n"
            )
            requests.append((head + f"Content-Length: {len(body)}\r\n\r\n" + body).encode())
        for begin in range(0, max(map(len, requests)), 300):
            for (_, writer), request in zip(streams, requests, strict=True):
                writer.write(request[begin : begin + 300])
                await writer.drain()
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            answers = [await reader.readuntil(b"\r\n0\r\n\r\n") for reader, _ in streams]
        assert all(
            answer.startswith(b"HTTP/1.1 200") and b"heartbeat" in answer for answer in answers
        )


@situations(
    "refused, status",
    {
        "a forged token": (stream_opening("forged") + chunk(b""), 401),
        "another path": (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", 404),
    },
)
async def test_agents_keep_their_connection_until_a_request_is_refused(
    refused: bytes, status: int
) -> None:
    async with serving_agents() as (server, _):
        stream = await connect(server, WORKERS[0], tls=True)
        assert [await ask(stream, server.tokens[0]) for _ in range(3)] == [200] * 3
        while (found := await send(stream, refused)) == 200:
            await asyncio.sleep(0.01)  # until the token is reviewed
        assert found == status
        assert await is_closed(stream, 10)
        stream[1].close()


async def test_pod_keeps_its_newest_connections() -> None:
    async with serving_agents() as (server, _):
        streams = [await connect(server, WORKERS[0], tls=True) for _ in range(MAX_PER_CLIENT + 3)]
        assert [await ask(stream, server.tokens[0]) for stream in streams] == [200] * len(streams)
        assert [await is_closed(stream, 10) for stream in streams[:3]] == [True] * 3
        assert [await ask(stream, server.tokens[0]) for stream in streams[3:]] == [
            200
        ] * MAX_PER_CLIENT
        for _, writer in streams:
            writer.close()


async def test_oldest_of_a_crowd_are_turned_away_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "MAX_WAITING", 5)
    async with serving_agents() as (server, api):
        # All at once for the server, whose event loop is this one.
        links = [
            socket.create_connection(("127.0.0.1", server.port), source_address=(STRANGER, 0))
            for _ in range(9)
        ]
        async with asyncio.timeout(20):
            while refused(api) != {"crowd": 4}:
                await asyncio.sleep(0.01)
        for link in links[:4]:
            link.settimeout(10)
            assert not link.recv(1), "closed without a word"
        for link in links:
            link.close()
