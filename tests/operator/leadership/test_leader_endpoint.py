"""The EndpointSlice that tells kube-proxies of the leader while the controller manager is away."""

import asyncio

import pytest
from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.leadership.leader_endpoint import (
    CHECK_SECONDS,
    NAME,
    Endpoint,
    endpoint_slice,
    keep_endpoint,
    write_endpoint,
)

from tests.operator.virtual_time import run_in_virtual_time

SYSTEM = "system"
FIRST = Endpoint("operator-a", "uid-a", "10.0.0.1", 8443)
SECOND = Endpoint("operator-b", "uid-b", "10.0.0.2", 8443)


async def told(cluster: FakeCluster) -> tuple[list[str], str]:
    """The addresses, and the pod that owns the EndpointSlice."""
    found = await cluster.get_endpoint_slice(SYSTEM, NAME)
    assert found is not None
    return found["endpoints"][0]["addresses"], found["metadata"]["ownerReferences"][0]["name"]


def test_the_service_takes_it_for_one_of_its_own() -> None:
    made = endpoint_slice(SYSTEM, FIRST)
    assert made["metadata"]["labels"]["kubernetes.io/service-name"] == "elastic-pytorch-operator"
    assert made["ports"][0] == {"name": "agents", "port": 8443, "protocol": "TCP", "appProtocol": "https"}


@pytest.mark.parametrize(("address", "kind"), [("10.0.0.1", "IPv4"), ("fd00::1", "IPv6")])
def test_addresses_of_both_families(address: str, kind: str) -> None:
    assert endpoint_slice(SYSTEM, Endpoint("a", "u", address, 1))["addressType"] == kind


async def test_each_leader_replaces_the_one_before() -> None:
    cluster = FakeCluster()
    for leader in (FIRST, SECOND, FIRST):
        await write_endpoint(cluster, SYSTEM, leader)
        assert await told(cluster) == ([leader.address], leader.pod)


async def test_one_that_is_right_is_left_alone() -> None:
    cluster = FakeCluster()
    await write_endpoint(cluster, SYSTEM, FIRST)
    await write_endpoint(cluster, SYSTEM, FIRST)
    assert cluster.calls.count("put_endpoint_slice") == 1


@pytest.mark.parametrize("code", [0, 403, 409, 503])
def test_failed_write_is_made_again(code: int) -> None:
    async def story() -> None:
        cluster = FakeCluster()
        cluster.fail_next("put_endpoint_slice", code)
        assert await write_endpoint(cluster, SYSTEM, FIRST)
        assert await cluster.get_endpoint_slice(SYSTEM, NAME) is None
        keeping = asyncio.create_task(keep_endpoint(cluster, SYSTEM, FIRST))
        await asyncio.sleep(CHECK_SECONDS + 0.1)
        keeping.cancel()
        assert await told(cluster) == ([FIRST.address], FIRST.pod)

    run_in_virtual_time(story())


def test_refusal_that_stays_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        cluster = FakeCluster()
        for _ in range(3):
            cluster.fail_next("put_endpoint_slice", 403)
        keeping = asyncio.create_task(keep_endpoint(cluster, SYSTEM, FIRST))
        await asyncio.sleep(3 * CHECK_SECONDS + 0.1)
        keeping.cancel()

    run_in_virtual_time(story())
    assert len(caplog.records) == 1


def test_late_write_of_an_earlier_leader_is_undone() -> None:
    async def story() -> None:
        cluster = FakeCluster()
        await write_endpoint(cluster, SYSTEM, SECOND)
        keeping = asyncio.create_task(keep_endpoint(cluster, SYSTEM, SECOND))
        await write_endpoint(cluster, SYSTEM, FIRST)
        await asyncio.sleep(CHECK_SECONDS + 0.1)
        keeping.cancel()
        assert await told(cluster) == ([SECOND.address], SECOND.pod)

    run_in_virtual_time(story())
