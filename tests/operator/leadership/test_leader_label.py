"""Which pod the agents' Service points to: exactly one, that of the leader."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.leadership.leader_label import CHECK_SECONDS, keep_label, take_label

from tests.operator.virtual_time import run_in_virtual_time

SYSTEM = "system"


async def a_cluster(*pods: str, labelled: tuple[str, ...] = ()) -> FakeCluster:
    cluster = FakeCluster()
    for pod in pods:
        labels = {names.LABEL_LEADER: "true"} if pod in labelled else {}
        await cluster.create_pod({"metadata": {"namespace": SYSTEM, "name": pod, "labels": labels}, "spec": {}})
    return cluster


def labelled(cluster: FakeCluster) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in cluster.pods(SYSTEM)
        if (pod["metadata"].get("labels") or {}).get(names.LABEL_LEADER) == "true"
    ]


@contextmanager
def kept(cluster: FakeCluster, pod: str) -> Iterator[None]:
    keeping = asyncio.create_task(keep_label(cluster, SYSTEM, pod))
    try:
        yield
    finally:
        keeping.cancel()


async def test_the_label_moves() -> None:
    cluster = await a_cluster("first", "second", "third", labelled=("first", "third"))
    others = await take_label(cluster, SYSTEM, "second")
    assert labelled(cluster) == ["second"]
    assert [pod["metadata"]["name"] for pod in others] == ["first", "third"]


async def test_there_is_always_one_to_go_to() -> None:
    cluster = await a_cluster("first", "second", labelled=("first",))
    seen: list[list[str]] = []
    cluster.watch(lambda *_: seen.append(labelled(cluster)))
    await take_label(cluster, SYSTEM, "second")
    assert [] not in seen


async def test_a_label_that_is_right_is_left_alone() -> None:
    cluster = await a_cluster("first", labelled=("first",))
    assert await take_label(cluster, SYSTEM, "first") == []
    assert "label_pod" not in cluster.calls


def test_who_removes_the_label_has_it_come_back() -> None:
    async def story() -> None:
        cluster = await a_cluster("first", labelled=("first",))
        with kept(cluster, "first"):
            await cluster.label_pod(SYSTEM, "first", names.LABEL_LEADER, None)
            await asyncio.sleep(CHECK_SECONDS + 0.1)
            assert labelled(cluster) == ["first"]

    run_in_virtual_time(story())


def test_late_write_of_an_earlier_leader_is_undone() -> None:
    async def story() -> None:
        cluster = await a_cluster("first", "second", labelled=("second",))
        with kept(cluster, "second"):
            await cluster.label_pod(SYSTEM, "first", names.LABEL_LEADER, "true")
            await asyncio.sleep(CHECK_SECONDS + 0.1)
            assert labelled(cluster) == ["second"]

    run_in_virtual_time(story())


def test_api_server_that_is_away_for_a_while_is_asked_again() -> None:
    async def story() -> None:
        cluster = await a_cluster("first")
        for verb in ("list_labelled_pods", "label_pod", "list_labelled_pods"):
            cluster.fail_next(verb, 503)
        await take_label(cluster, SYSTEM, "first")
        assert labelled(cluster) == ["first"]

    run_in_virtual_time(story())
