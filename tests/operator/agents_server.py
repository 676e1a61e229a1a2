"""Serves agents of one job over TLS, as the operator does, for a cluster in memory.

As a program it does so in a process of its own, whose memory can be measured, and prints how to
reach it as a line of JSON.
"""

import asyncio
import json
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.agents.http_api import AgentApi, listening
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.token_review import TokenReviewer
from elastic_pytorch_operator.api.resources import NODES, PODS
from elastic_pytorch_operator.http.connections import ConnectionLimits
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.tls.rotation import Trust
from elastic_pytorch_operator.tls.secret import load_certificate, renew, server_context

from tests.operator.builders import a_job, a_manifest, a_worker_pod

STRANGER, OTHER_STRANGER = "127.0.0.2", "127.0.0.5"
WORKERS = ("127.0.0.3", "127.0.0.4", "127.0.0.6")


@dataclass(frozen=True)
class AgentsServer:
    port: int
    authorities: str
    tokens: list[str]


@asynccontextmanager
async def serving_agents(
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[tuple[AgentsServer, AgentApi]]:
    cluster, cache = FakeCluster(), Cache()
    pods = [
        await cluster.create(PODS, a_worker_pod(a_job(), index)) for index in range(len(WORKERS))
    ]
    for pod, address in zip(pods, WORKERS, strict=True):
        cluster.set_pod_status(
            "default", pod["metadata"]["name"], {"phase": "Running", "podIP": address}
        )
    cache.replace_all(
        [a_manifest()], await cluster.list_all(PODS), await cluster.list_all(NODES), 0.0
    )
    api = AgentApi(cache, AgentRegistry(), TokenReviewer(cluster), lambda *_: None)
    trust, tls = renew(Trust(), ["localhost"], time.time()), server_context()
    load_certificate(trust.shown, tls)
    async with listening(api, "127.0.0.1", 0, tls, limits) as port:
        tokens = [cluster.issue_token("default", pod["metadata"]["name"]) for pod in pods]
        yield AgentsServer(port, trust.bundle, tokens), api


async def serve() -> None:
    async with serving_agents() as (server, _):
        print(json.dumps(vars(server)), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(serve())
