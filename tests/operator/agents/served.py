"""The agents' API of one operator, on a real server, with one worker pod."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from elastic_pytorch_operator.agents.http_api import AgentApi, listening
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.token_review import TokenReviewer
from elastic_pytorch_operator.api.resources import NODES, PODS
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import a_job, a_manifest, a_worker_pod
from tests.operator.counted_cluster import CountedCluster

BEAT = {"incarnation": "a", "state": "ready", "round": 0}
POD = "lm-worker-0-x7k2p"
SECONDS = 20.0


@dataclass
class Served:
    """A served API with one worker pod, and what it takes to talk to it as that pod.

    Attributes:
        leads: whether this operator leads.
    """

    url: str
    session: aiohttp.ClientSession
    cluster: CountedCluster
    cache: Cache
    registry: AgentRegistry
    token: str
    work: list[JobKey] = field(default_factory=list)
    leads: bool = True
    port: int = 0

    async def say(self, beat: Any, token: str | None = None) -> tuple[int, Any]:
        """Sends a heartbeat on a stream of its own; returns the status and the answer."""
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        async with self.session.post(
            f"{self.url}/v1/agent", data=json.dumps(beat), headers=headers
        ) as answer:
            if answer.status != 200:
                return answer.status, await answer.json()
            told = json.loads(await answer.content.readline())
        return (
            (200, told["heartbeat"])
            if "heartbeat" in told
            else (told["refused"]["status"], told["refused"])
        )


async def a_cluster_of_workers(count: int, **job: Any) -> tuple[CountedCluster, Cache]:
    """A cluster with the pods of a job, and a cache that knows them."""
    cluster, cache = CountedCluster(), Cache()
    for index in range(count):
        await cluster.create(PODS, a_worker_pod(a_job(**job), index))
    cache.replace_all(
        [a_manifest(**job)], await cluster.list_all(PODS), await cluster.list_all(NODES), 0.0
    )
    return cluster, cache


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[Served]:
    cluster, cache = await a_cluster_of_workers(1)
    registry = AgentRegistry()
    async with aiohttp.ClientSession() as session:
        served = Served("", session, cluster, cache, registry, cluster.issue_token("default", POD))
        reviewer = TokenReviewer(cluster)
        api = AgentApi(
            cache,
            registry,
            reviewer,
            lambda key, _: served.work.append(key),
            leading=lambda: served.leads,
        )
        async with listening(api, "127.0.0.1", port, tls) as served.port:
            served.url = f"http{'s' if tls else ''}://127.0.0.1:{served.port}"
            yield served


class Stream:
    def __init__(self, answer: aiohttp.ClientResponse, lines: asyncio.Queue[bytes]) -> None:
        self.status = answer.status
        self._answer, self._lines = answer, lines

    def send(self, fields: Any = BEAT) -> None:
        self.send_line(json.dumps(fields).encode())

    def send_line(self, line: bytes) -> None:
        self._lines.put_nowait(line + b"\n")

    def end(self) -> None:
        self._lines.put_nowait(b"")

    async def receive_any(self) -> tuple[str, Any]:
        """The kind of the next line, and its fields."""
        [found] = json.loads(
            await asyncio.wait_for(self._answer.content.readline(), SECONDS)
        ).items()
        return found

    async def receive(self, kind: str) -> Any:
        found, fields = await self.receive_any()
        assert found == kind, fields
        return fields

    async def ends(self) -> bool:
        try:
            return await asyncio.wait_for(self._answer.content.readline(), SECONDS) == b""
        except aiohttp.ClientError:
            return True


@asynccontextmanager
async def streaming(served: Served, first: Any = BEAT) -> AsyncIterator[Stream]:
    """A stream, and a heartbeat that it begins with."""
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    lines.put_nowait(json.dumps(first).encode() + b"\n")

    async def body() -> AsyncIterator[bytes]:
        while line := await lines.get():
            yield line

    headers = {"Authorization": f"Bearer {served.token}"}
    async with served.session.post(
        f"{served.url}/v1/agent", data=body(), headers=headers
    ) as answer:
        yield Stream(answer, lines)


@asynccontextmanager
async def begun(served: Served) -> AsyncIterator[Stream]:
    """A stream whose first heartbeat was answered."""
    async with streaming(served) as stream:
        await stream.receive("heartbeat")
        await stream.receive("round")
        yield stream
