"""The agents' API of one operator, on a real server, with one worker pod."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from elastic_pytorch_operator.agents.http_api import AgentApi, listening
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.token_review import TokenReviewer
from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import a_job, a_manifest, a_worker_pod

BEAT = {"incarnation": "a", "state": "ready", "round": 0}
POD = "lm-worker-0-x7k2p"


@dataclass
class Served:
    """A served API with one worker pod, and what it takes to talk to it as that pod.

    Attributes:
        leads: whether this operator leads.
    """

    url: str
    session: aiohttp.ClientSession
    cluster: FakeCluster
    cache: Cache
    registry: AgentRegistry
    token: str
    work: list[JobKey] = field(default_factory=list)
    leads: bool = True
    port: int = 0

    async def post(self, body: Any, token: str | None = None, path: str = "/v1/heartbeat") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        async with self.session.post(self.url + path, json=body, headers=headers) as answer:
            return answer.status, await answer.json() if answer.content_type == "application/json" else None

    async def poll(self, after: int = 0, nudge: int = 0, brief: int = 0) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        query = f"after={after}&nudge={nudge}&hold=20&brief={brief}"
        async with self.session.get(f"{self.url}/v1/round?{query}", headers=headers) as answer:
            return await answer.json()


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[Served]:
    cluster, cache, registry = FakeCluster(), Cache(), AgentRegistry()
    await cluster.create_pod(a_worker_pod(a_job(), 0))
    cache.replace_all([a_manifest()], await cluster.list_pods(), await cluster.list_nodes(), 0.0)
    async with aiohttp.ClientSession() as session:
        served = Served("", session, cluster, cache, registry, cluster.issue_token("default", POD))
        reviewer = TokenReviewer(cluster)
        api = AgentApi(cache, registry, reviewer, lambda key, _: served.work.append(key), leading=lambda: served.leads)
        async with listening(api, "127.0.0.1", port, tls) as served.port:
            served.url = f"http{'s' if tls else ''}://127.0.0.1:{served.port}"
            yield served
