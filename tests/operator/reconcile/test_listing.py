import asyncio

import pytest
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import Resource
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.reconcile.listing import MAX_AT_ONCE, can_list_any, list_cluster

from tests.operator.builders import a_manifest
from tests.operator.faulty_cluster import FaultyCluster
from tests.situations import situations


def a_cluster(*namespaces: str, **unlistable: int) -> FaultyCluster:
    """A cluster with a job in each of the namespaces a, b and c, of which some are looked after."""
    cluster = FaultyCluster()
    cluster.namespaces, cluster.unlistable = namespaces, unlistable
    for namespace in "abc":
        cluster.apply_job(a_manifest(namespace=namespace))
    return cluster


@situations(
    "namespaces, unlistable, listed, failed, trouble",
    {
        "all": ((), {}, "abc", {}, None),
        "some": (("a", "b"), {}, "ab", {}, None),
        "refused": (("a", "b"), {"b": 403}, "a", {"b": 403}, None),
        "not there": (("a", "b"), {"a": 404}, "b", {"a": 404}, None),
        "failing": (("a", "b"), {"b": 500}, "a", {"b": 500}, 500),
        "refused, and no answer": (("a", "b", "c"), {"a": 403, "b": 0}, "c", {"a": 403, "b": 0}, 0),
    },
)
async def test_each_namespace_is_listed_by_itself(
    namespaces: tuple[str, ...],
    unlistable: dict[str, int],
    listed: str,
    failed: dict[str, int],
    trouble: int | None,
) -> None:
    found = await list_cluster(a_cluster(*namespaces, **unlistable), kueue=True)
    assert [job["metadata"]["namespace"] for job in found.jobs] == list(listed)
    assert {name: error.code for name, error in found.failed.items()} == failed
    assert (found.trouble.code if found.trouble else None) == trouble, "what may pass by itself"
    assert len(found.nodes) == 3


@pytest.mark.parametrize("namespaces", [("a",), ("a", "b")])
async def test_list_of_nothing_fails(namespaces: tuple[str, ...]) -> None:
    with pytest.raises(ClusterError, match="cannot list a"):
        await list_cluster(a_cluster(*namespaces, a=403, b=403), kueue=False)


@pytest.mark.parametrize(
    ("verb", "namespaces"), [("list Node", ("a",)), ("list Node", ()), ("list Pod", ())]
)
async def test_nodes_and_all_namespaces_together_must_be_listed(
    verb: str, namespaces: tuple[str, ...]
) -> None:
    cluster = a_cluster(*namespaces)
    cluster.fail_next(verb, 403)
    with pytest.raises(ClusterError):
        await list_cluster(cluster, kueue=False)


async def test_namespace_is_there_if_all_of_it_can_be_listed() -> None:
    cluster = a_cluster("a", "b", b=403)
    assert await can_list_any(cluster, ["b", "a"], kueue=True)
    assert not await can_list_any(cluster, ["b"], kueue=True)
    assert not await can_list_any(cluster, [], kueue=True)
    cluster.fail_next("list Workload", 403)
    assert not await can_list_any(cluster, ["a"], kueue=True)


async def test_without_kueue_there_are_no_workloads() -> None:
    cluster = a_cluster("a")
    cluster.fail_next("list Workload", 404, "the server could not find the requested resource")
    assert (await list_cluster(cluster, kueue=True)).workloads == []


class CountedLists(FaultyCluster):
    """Counts the lists that are on their way."""

    now = most = 0

    async def list_all(self, resource: Resource, namespace: str = "") -> list[Manifest]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return await super().list_all(resource, namespace)


async def test_many_namespaces_are_not_all_listed_at_once() -> None:
    cluster = CountedLists()
    cluster.namespaces = tuple(f"tenant-{number}" for number in range(3 * MAX_AT_ONCE))
    await list_cluster(cluster, kueue=False)
    assert cluster.most == MAX_AT_ONCE
