"""What agents may cost: one sends too much, and strangers forge tokens, on a real server."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import pytest
from elastic_pytorch_operator.agents.http_api import AgentApi, listening
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.token_review import (
    REVIEWS_AT_ONCE,
    REVIEWS_PER_SECOND,
    TokenReviewer,
)
from elastic_pytorch_operator.http.connections import MAX_PER_CLIENT

from tests.operator.agents.served import BEAT, a_cluster_of_workers
from tests.operator.counted_cluster import CountedCluster

pytestmark = pytest.mark.process

FLOOD = 1000
REQUESTS = 300  # of one pod: each that is refused costs a connection


@dataclass
class Served:
    url: str
    cluster: CountedCluster
    session: aiohttp.ClientSession

    def token(self, index: int) -> str:
        pod = self.cluster.pods()[index]["metadata"]
        return self.cluster.issue_token(pod["namespace"], pod["name"])

    async def beat(self, token: str) -> aiohttp.ClientResponse:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.post(
            f"{self.url}/v1/agent", data=json.dumps(BEAT), headers=headers
        ) as answer:
            await answer.read()
            return answer


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    cluster, cache = await a_cluster_of_workers(2)
    api = AgentApi(cache, AgentRegistry(), TokenReviewer(cluster), lambda *_: None)
    connector = aiohttp.TCPConnector(limit=MAX_PER_CLIENT)
    async with (
        listening(api, "127.0.0.1", 0) as port,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        yield Served(f"http://127.0.0.1:{port}", cluster, session)


async def test_flood_of_one_pod_leaves_the_others_their_heartbeats() -> None:
    async with served() as operator:
        noisy, calm = operator.token(0), operator.token(1)
        flood = [asyncio.create_task(operator.beat(noisy)) for _ in range(REQUESTS)]
        async with aiohttp.ClientSession() as session:
            other = Served(operator.url, operator.cluster, session)
            codes = []
            while not all(task.done() for task in flood):
                codes.append((await asyncio.wait_for(other.beat(calm), 10)).status)
                await asyncio.sleep(0.2)
        answers = [await task for task in flood]
        refused = [answer for answer in answers if answer.status == 429]
        assert set(codes) == {200}
        assert len(refused) > REQUESTS / 4
        assert {answer.headers["Retry-After"] for answer in refused} == {"1"}
        await asyncio.sleep(1)
        assert (await operator.beat(noisy)).status == 200, "who waits as told is heard again"


async def test_forged_tokens_cost_few_reviews() -> None:
    async with served() as operator, aiohttp.ClientSession() as session:
        calm, known = Served(operator.url, operator.cluster, session), operator.token(0)
        assert (await calm.beat(known)).status == 200

        async def forge(number: int) -> int:
            try:
                return (await operator.beat(f"forged-{number}")).status
            except aiohttp.ClientConnectionError:
                return 0  # its address has opened too many connections

        began = time.monotonic()
        codes = Counter(await asyncio.gather(*(forge(n) for n in range(FLOOD))))
        seconds = time.monotonic() - began
        assert {401} <= set(codes) <= {401, 429, 0}
        reviews = operator.cluster.calls.count("review_token")
        assert reviews <= 1 + REVIEWS_AT_ONCE + REVIEWS_PER_SECOND * (seconds + 1)
        assert (await calm.beat(known)).status == 200, "a token that is known needs no review"


async def test_one_forged_token_shown_often_is_reviewed_once() -> None:
    async with served() as operator:
        codes = {(await operator.beat("forged")).status for _ in range(50)}
        assert codes == {401}
        assert operator.cluster.calls.count("review_token") == 1
