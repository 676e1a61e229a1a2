"""An agent's stream, on a real server: heartbeats, answers and rounds, and its end."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest
from elastic_pytorch_operator.agents.http_api import BURST_SECONDS, LINES_PER_SECOND, MAX_STREAMS
from elastic_pytorch_operator.agents.stream_lines import PAUSE_SECONDS
from elastic_pytorch_operator.model.round import Member, Round

from tests.operator.agents.served import BEAT, POD, SECONDS, Served, begun, streaming
from tests.operator.builders import KEY
from tests.situations import situations

pytestmark = pytest.mark.process

ROUND = Round(3, (Member(POD, "10.0.0.1"),), 29501, "FirstRound", "why", 0.0)


async def test_each_heartbeat_is_answered_and_the_round_comes_after_the_first(
    served: Served,
) -> None:
    async with streaming(served) as stream:
        assert (await stream.receive("heartbeat"))["heartbeatSeconds"] == 1.0
        found = await stream.receive("round")
        assert (found["round"], found["rank"]) == (0, None)
        stream.send({**BEAT, "state": "running", "round": 2})
        await stream.receive("heartbeat")
        assert served.registry.agents("uid-lm", {POD})[POD].round == 2
    assert KEY in served.work


async def test_round_that_was_declared_before_comes_after_the_first_heartbeat(
    served: Served,
) -> None:
    served.registry.declare("uid-lm", ROUND)
    async with streaming(served) as stream:
        await stream.receive("heartbeat")
        assert (await stream.receive("round"))["round"] == 3


async def test_all_news_come_at_once(served: Served) -> None:
    async with begun(served) as stream:
        served.registry.declare("uid-lm", ROUND)
        found = await stream.receive("round")
        assert (found["round"], found["rank"], found["size"], found["cause"]) == (
            3,
            0,
            1,
            "FirstRound: why",
        )
        served.registry.nudge("uid-lm", 3)
        assert (await stream.receive("round"))["nudge"] == 1
        served.registry.conclude("uid-lm", "complete")
        assert (await stream.receive("round"))["verdict"] == "complete"


async def test_stream_that_is_cut_is_noticed_at_once(served: Served) -> None:
    async with begun(served):
        assert served.registry.open_streams == 1
        served.work.clear()
    async with asyncio.timeout(SECONDS):
        while not served.work:
            await asyncio.sleep(0.01)
    assert served.registry.agents("uid-lm", {POD})[POD].disconnected_since is not None
    assert served.registry.open_streams == 0


async def test_stream_that_the_agent_ends_is_no_sign_against_it(served: Served) -> None:
    async with begun(served) as stream:
        served.work.clear()
        stream.end()
        assert await stream.ends()
        assert served.registry.open_streams == 0
        assert served.registry.agents("uid-lm", {POD})[POD].disconnected_since is None
    assert served.work == []


async def test_renewed_token_takes_the_place_of_the_first(served: Served) -> None:
    renewed = served.cluster.issue_token("default", POD)
    async with begun(served) as stream:
        stream.send({"token": renewed})
        stream.send()
        await stream.receive("heartbeat")
        stream.send({"token": ""})
        stream.send()
        assert (await stream.receive("refused"))["status"] == 401
        assert await stream.ends()


@pytest.mark.parametrize(
    "line",
    [
        [],
        {"state": "ready"},
        {**BEAT, "round": "1"},
        {**BEAT, "incarnation": "x" * 70_000},
        {"token": None},
    ],
    ids=lambda line: str(line)[:40],
)
async def test_malformed_heartbeat_ends_the_stream_and_changes_nothing(
    served: Served, line: Any
) -> None:
    async with begun(served) as stream:
        served.work.clear()
        stream.send(line)
        refusal = await stream.receive("refused")
        assert refusal["status"] == 400
        assert refusal["error"]
        assert await stream.ends()
        assert served.work == []


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no JSON",
        b"\xff",
        b"[" * 60_000,
        b'{"token": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"incarnation": "a", "state": "ready", "round": ' + b"9" * 5000 + b"}",
        b'{"incarnation": "a", "state": "ready", "round": NaN}',
        b'{"incarnation": "a", "state": "ready", "round": 0, "progress": {"loss": -Infinity}}',
        b'{"incarnation": "a", "state": "\\ud800", "round": 0}',
    ],
    ids=lambda line: repr(line[:60]),
)
async def test_line_that_is_no_heartbeat_ends_the_stream_with_a_reason(
    served: Served, caplog: pytest.LogCaptureFixture, line: bytes
) -> None:
    async with begun(served) as stream:
        stream.send_line(line)
        assert (await stream.receive("refused"))["status"] == 400
        assert await stream.ends()
    assert not caplog.messages


async def test_operator_that_leads_no_more_ends_the_stream(served: Served) -> None:
    async with begun(served) as stream:
        served.leads = False
        stream.send()
        assert await stream.receive("refused") == {
            "status": 503,
            "error": "this operator is starting, or another one leads",
            "retrySeconds": 1,
        }
        assert await stream.ends()
    async with streaming(served) as stream:
        assert stream.status == 503


async def test_pod_that_is_gone_is_refused(served: Served) -> None:
    async with begun(served) as stream:
        served.cluster.finish_deletion("default", POD)
        served.cache.replace_all([], [], [], 1.0)
        stream.send()
        assert (await stream.receive("refused"))["status"] == 403
        assert await stream.ends()


async def test_flood_on_a_stream_is_refused_and_the_stream_goes_on(served: Served) -> None:
    async with begun(served) as stream:
        for _ in range(100):
            stream.send()
        kinds: Counter[str] = Counter()
        for _ in range(100):
            kind, fields = await stream.receive_any()
            kinds[kind] += 1
            assert kind == "heartbeat" or fields["status"] == 429
        assert kinds["heartbeat"] >= LINES_PER_SECOND * BURST_SECONDS - 2, (
            "as many as may come at once, the first two included"
        )
        assert kinds["refused"] > 0
        await asyncio.sleep(1)
        stream.send()
        await stream.receive("heartbeat")


async def test_refused_line_has_its_stream_read_no_further_for_a_while(served: Served) -> None:
    async with begun(served) as stream:
        for _ in range(300):
            stream.send()
        pauses: list[float] = []
        # This test may hear of a refusal late, and of the next line in time: not again and again.
        while len(pauses) < 4:
            while (await stream.receive_any())[0] != "refused":
                pass
            refused_at = time.monotonic()
            await stream.receive_any()
            pauses.append(time.monotonic() - refused_at)
        assert max(pauses) > PAUSE_SECONDS / 2


@situations(
    "line",
    {
        "renewed tokens": {"token": "TOKEN"},
        "long lines count as several": {**BEAT, "more": "x" * 60_000},
    },
)
async def test_each_line_counts_on_all_streams_of_a_pod(served: Served, line: Any) -> None:
    line = {"token": served.token} if "token" in line else line
    async with begun(served) as stream, begun(served) as other:
        for _ in range(80):
            stream.send(line)
        async with asyncio.timeout(SECONDS):
            while True:
                other.send()
                if (await other.receive_any())[0] == "refused":
                    break


async def test_pod_may_have_a_few_streams_only(served: Served) -> None:
    async with begun(served), begun(served), begun(served), begun(served):
        assert served.registry.open_streams == MAX_STREAMS
        async with streaming(served) as stream:
            assert stream.status == 429
