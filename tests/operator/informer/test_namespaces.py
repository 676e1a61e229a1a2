"""Which namespaces the operator lists and watches, as an API server sees it."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from elastic_pytorch_operator.cluster.kubernetes_api import KubernetesCluster
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.kopf_watches import watch_cluster
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.reconcile.listing import list_cluster
from kubernetes.aio import client

from tests.operator.api_server import JOBS, api_server, write_kubeconfig
from tests.situations import situations

NAMESPACES = situations("namespaces", {"all": (), "some": ("a", "b")})


def paths(namespaces: tuple[str, ...]) -> set[str]:
    """What is listed and watched, and nothing else: no namespaces, no resource definitions."""
    places = [f"namespaces/{name}/" for name in namespaces] or [""]
    return {
        "api/v1/nodes",
        *(f"api/v1/{place}pods" for place in places),
        *(f"{JOBS}/{place}elasticpytorchjobs" for place in places),
    }


@NAMESPACES
async def test_only_the_namespaces_that_are_looked_after_are_listed(
    namespaces: tuple[str, ...],
) -> None:
    async with api_server() as (server, url):
        cluster = KubernetesCluster(client.Configuration(host=url), Metrics().requested, namespaces)
        try:
            found = await list_cluster(cluster, kueue=False)
        finally:
            await cluster.close()
    assert [pod["metadata"]["namespace"] for pod in found.pods] == list(namespaces), (
        "what is there is told, of each namespace"
    )
    assert server.listed == paths(namespaces)


@NAMESPACES
async def test_only_the_namespaces_that_are_looked_after_are_watched(
    namespaces: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api_server() as (server, url):
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path, url)))
        watching = asyncio.create_task(watch_cluster(Cache(), lambda *_: None, namespaces))
        try:
            async with asyncio.timeout(30):
                while not paths(namespaces) <= server.watched:
                    assert not watching.done(), "the watches are kept open"
                    await asyncio.sleep(0.05)
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
    assert server.watched == server.listed == paths(namespaces)
