"""What one tenant writes, or has deleted, does not end the replica that serves the others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.resources import PODS
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.runtime import replica as replica_module
from elastic_pytorch_operator.runtime.replica import Replica
from elastic_pytorch_operator.runtime.settings import ReplicaSettings
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import a_job, a_manifest, a_worker_pod
from tests.operator.faulty_cluster import FaultyCluster
from tests.ports import free_port

Ask = Callable[[str], Awaitable[tuple[int, str]]]


async def watch(_: Cache, __: Callable[[Iterable[JobKey]], None]) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def running(cluster: FaultyCluster) -> AsyncIterator[Ask]:
    """A replica that needs no election; yields what asks its probes."""
    settings = ReplicaSettings(
        "http://operator", "127.0.0.1", free_port(), free_port(), watched=cluster.namespaces
    )
    stop = asyncio.Event()
    task = asyncio.create_task(Replica(cluster, settings, watch).run(stop))

    async def ask(path: str) -> tuple[int, str]:
        assert not task.done()
        try:
            async with session.get(f"http://127.0.0.1:{settings.probe_port}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async with aiohttp.ClientSession() as session:
        yield ask
    stop.set()
    await asyncio.wait_for(task, 20)


async def until(fulfilled: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await fulfilled():
            await asyncio.sleep(0.05)


def a_cluster(*namespaces: str, **unlistable: int) -> FaultyCluster:
    cluster = FaultyCluster()
    cluster.namespaces, cluster.unlistable = namespaces, unlistable
    cluster.apply_job(a_manifest(namespace="a"))
    return cluster


async def until_served(cluster: FaultyCluster, ask: Ask) -> None:
    async def serves() -> bool:
        return (await ask("/readyz"))[0] == 200 and len(cluster.pods("a")) == 3

    await until(serves)


async def test_annotation_of_a_pod_does_not_end_it() -> None:
    cluster = a_cluster()
    pod = a_worker_pod(a_job())
    pod["metadata"]["annotations"][names.ANNOTATION_GROUP_RESTARTS] = "²"
    await cluster.create(PODS, pod)
    async with running(cluster) as ask:
        await until_served(cluster, ask)
        assert (await ask("/healthz"))[0] == 200


@pytest.mark.parametrize("code", [403, 404])
async def test_namespace_that_is_refused_does_not_keep_it_from_serving_the_others(
    code: int,
) -> None:
    cluster = a_cluster("a", "b", b=code)
    async with running(cluster) as ask:
        await until_served(cluster, ask)
        assert (await ask("/healthz"))[0] == 200
        assert (
            'elastic_pytorch_namespace_unavailable{namespace="b"} 1.0' in (await ask("/metrics"))[1]
        )


async def test_namespace_that_fails_for_long_does_not_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_module, "PRIME_RETRY_SECONDS", 0.01)
    cluster = a_cluster("a", "b", b=500)
    async with running(cluster) as ask:
        await until_served(cluster, ask)


@pytest.mark.process
async def test_it_is_not_ready_while_no_namespace_can_be_listed() -> None:
    cluster = a_cluster("a", "b", a=403, b=403)
    async with running(cluster) as ask:

        async def answers() -> bool:
            return (await ask("/healthz"))[0] == 200

        await until(answers)
        await asyncio.sleep(2 * replica_module.PRIME_RETRY_SECONDS)
        assert (await ask("/readyz"))[0] == 503
        del cluster.unlistable["a"]
        await until_served(cluster, ask)
