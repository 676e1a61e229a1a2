"""How long a turn of the event loop takes while pods send as much as the server admits."""

import asyncio
import json
import multiprocessing
from typing import Any

import pytest
from elastic_pytorch_operator.agents.http_api import MAX_STREAMS, AgentApi, listening
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.stream_lines import MAX_LINE_BYTES
from elastic_pytorch_operator.agents.token_review import TokenReviewer
from elastic_pytorch_operator.http.connections import MAX_PER_CLIENT
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues

from tests.operator.agents.served import a_cluster_of_workers
from tests.operator.event_loop_time import MAX_TURN_CALLS, calls_in_the_best_try, longest_turn
from tests.operator.flooder import BEAT, chunk, flood, many, stream_opening

pytestmark = pytest.mark.process

PERIOD_SECONDS = 0.25


def long_line(field: Any) -> bytes:
    line = json.dumps({**json.loads(BEAT), "field": field}).encode()
    return line[: MAX_LINE_BYTES - 1] + b"\n"


LINES = {
    "heartbeats": chunk(many(BEAT + b"\n")),
    "tokens": chunk(many(b'{"token":"TOKEN"}\n')),
    "garbage": chunk(many(b"garbage\n")),
    "empty lines": chunk(many(b"\n")),
    "long heartbeats": chunk(long_line([[]] * 15_000)),
    "many numbers": chunk(long_line([1] * 20_000)),
    "a line without an end": chunk(many(b"x")),
    "a heartbeat in chunks of a byte": b"".join(
        chunk(bytes([byte])) for byte in many(BEAT + b"\n")[:10_000]
    ),
    "an endless line in chunks of a byte": many(chunk(b"x")),
}
REQUESTS = {
    "streams": stream_opening("TOKEN").decode() + chunk(b"").decode(),
    "unknown paths": "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "bodies that are not read": (
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk(b"x").decode() * 10_000
        + chunk(b"").decode()
    ),
}


async def turn_while_pods_send(pods: int, opening: str, block: bytes, connections: int) -> float:
    """The calls in the longest turn, in the best of some periods of that many connections."""
    cluster, cache = await a_cluster_of_workers(pods, replicas=8, maximum=8)
    api = AgentApi(cache, AgentRegistry(), TokenReviewer(cluster), lambda *_: None)
    tokens = [cluster.issue_token("default", pod["metadata"]["name"]) for pod in cluster.pods()]
    senders = [
        (opening.replace("TOKEN", token).encode(), block.replace(b"TOKEN", token.encode()))
        for token in tokens
        for _ in range(connections)
    ]
    async with listening(api, "127.0.0.1", 0) as port:
        process = multiprocessing.get_context("spawn").Process(
            target=flood, args=(port, senders, 60.0)
        )
        process.start()
        try:
            async with asyncio.timeout(30):
                while b"elastic_pytorch_agent_requests_total{" not in api.metrics.render(
                    GaugeValues()
                ):
                    await asyncio.sleep(0.05)
            return await calls_in_the_best_try(lambda: longest_turn(PERIOD_SECONDS))
        finally:
            process.kill()
            process.join()


@pytest.mark.parametrize("pods", [pytest.param(1, marks=pytest.mark.long), 6])
@pytest.mark.parametrize("block", LINES.values(), ids=LINES)
async def test_no_turn_is_long_while_pods_flood_their_streams(pods: int, block: bytes) -> None:
    turn = await turn_while_pods_send(pods, stream_opening("TOKEN").decode(), block, MAX_STREAMS)
    assert turn < MAX_TURN_CALLS


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_no_turn_is_long_while_a_pod_sends_requests_without_waiting_for_answers(
    request_: str,
) -> None:
    turn = await turn_while_pods_send(
        1, REQUESTS["streams"], many(request_.encode()), MAX_PER_CLIENT
    )
    assert turn < MAX_TURN_CALLS
