import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.resources import ENDPOINT_SLICES
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.leadership.leader_endpoint import (
    CHECK_SECONDS,
    RETRY_SECONDS,
    Endpoint,
    endpoint_slice,
    keep_endpoint,
    node_of,
    take_endpoint,
    write_endpoint,
)

from tests.operator.counted_cluster import CountedCluster
from tests.operator.faulty_cluster import add_object
from tests.situations import situations

pytestmark = pytest.mark.usefixtures("virtual_time")

SYSTEM = "system"
IPV4, IPV6 = "elastic-pytorch-operator-ipv4", "elastic-pytorch-operator-ipv6"
FIRST = Endpoint("operator-a", "uid-a", "10.0.0.1", 8443, "node-1")
SECOND = Endpoint("operator-b", "uid-b", "10.0.0.2", 8443, "node-2")


def with_empty_slices() -> CountedCluster:
    """A cluster with the EndpointSlices as the chart renders them."""
    cluster = CountedCluster()
    for name in (IPV4, IPV6):
        add_object(cluster, "EndpointSlice", SYSTEM, name)
    return cluster


async def told(cluster: CountedCluster, name: str = IPV4) -> list[str]:
    """The addresses that the Service leads to."""
    found = await cluster.get(ENDPOINT_SLICES, SYSTEM, name)
    return [address for there in found.get("endpoints") or () for address in there["addresses"]]


async def change(cluster: CountedCluster, edit: Callable[[dict[str, Any]], object]) -> Manifest:
    """What a person does to the EndpointSlice; returns it as it is then."""
    found = dict(await cluster.get(ENDPOINT_SLICES, SYSTEM, IPV4))
    edit(found)
    return await cluster.replace(ENDPOINT_SLICES, found)


@situations(
    "address, family, name", {"IPv4": ("10.0.0.1", "IPv4", IPV4), "IPv6": ("fd00::1", "IPv6", IPV6)}
)
async def test_address_goes_into_the_slice_of_its_family(
    address: str, family: str, name: str
) -> None:
    cluster = with_empty_slices()
    await write_endpoint(cluster, SYSTEM, Endpoint("a", "u", address, 1))
    found = await cluster.get(ENDPOINT_SLICES, SYSTEM, name)
    assert found["addressType"] == family
    assert await told(cluster, name) == [address]
    assert await told(cluster, IPV6 if name == IPV4 else IPV4) == []


def test_service_takes_it_for_one_of_its_own() -> None:
    made = endpoint_slice(SYSTEM, FIRST)
    assert made["metadata"]["labels"] == {
        "kubernetes.io/service-name": "elastic-pytorch-operator",
        "endpointslice.kubernetes.io/managed-by": "elastic-pytorch-operator",
    }
    assert made["ports"] == [
        {"name": "agents", "port": 8443, "protocol": "TCP", "appProtocol": "https"}
    ]


async def test_each_leader_replaces_the_one_before_and_learns_where_that_ran() -> None:
    cluster = with_empty_slices()
    before = await write_endpoint(cluster, SYSTEM, FIRST)
    assert node_of(before, "") == node_of(before, FIRST.pod) == ""
    before = await write_endpoint(cluster, SYSTEM, SECOND)
    assert await told(cluster) == [SECOND.address]
    assert node_of(before, FIRST.pod) == "node-1"
    assert node_of(before, SECOND.pod) == "", "another pod has left its address there"
    before = await write_endpoint(cluster, SYSTEM, Endpoint("c", "u", "10.0.0.3", 8443))
    assert node_of(before, SECOND.pod) == "node-2"
    assert node_of(await cluster.get(ENDPOINT_SLICES, SYSTEM, IPV4), "c") == "", (
        "its node is not known"
    )


async def test_one_that_is_right_is_left_alone_whatever_the_api_server_adds() -> None:
    cluster = with_empty_slices()
    await write_endpoint(cluster, SYSTEM, FIRST)
    await change(cluster, lambda found: found["endpoints"][0].update(zone="zone-1"))
    await change(cluster, lambda found: found["metadata"].update(generation=7))
    writes = cluster.calls.count("replace EndpointSlice")
    await write_endpoint(cluster, SYSTEM, FIRST)
    assert cluster.calls.count("replace EndpointSlice") == writes


async def test_what_others_have_written_into_its_metadata_stays() -> None:
    cluster = with_empty_slices()
    owned = {
        "annotations": {"meta.helm.sh/release-name": "release"},
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
    }
    await change(cluster, lambda found: found["metadata"].update(owned))
    await write_endpoint(cluster, SYSTEM, FIRST)
    metadata = (await cluster.get(ENDPOINT_SLICES, SYSTEM, IPV4))["metadata"]
    assert metadata["annotations"] == owned["annotations"]
    assert (
        metadata["labels"] == owned["labels"] | endpoint_slice(SYSTEM, FIRST)["metadata"]["labels"]
    )


@pytest.mark.parametrize(
    "edit",
    [
        lambda found: found["ports"][0].update(port=8444),
        lambda found: found["ports"][0].pop("appProtocol"),
        lambda found: found.update(ports=None),
        lambda found: found["ports"].append({"name": "metrics", "port": 8781}),
        lambda found: found["endpoints"][0]["conditions"].update(ready=False),
        lambda found: found["endpoints"][0].update(addresses=["10.0.0.9"]),
        lambda found: found["endpoints"][0]["targetRef"].update(uid="another pod of that name"),
        lambda found: found["metadata"]["labels"].clear(),
        lambda found: found["metadata"].pop("labels"),
    ],
)
async def test_any_field_that_is_changed_is_corrected(
    edit: Callable[[dict[str, Any]], object],
) -> None:
    cluster = with_empty_slices()
    await write_endpoint(cluster, SYSTEM, FIRST)
    right = await cluster.get(ENDPOINT_SLICES, SYSTEM, IPV4)
    await change(cluster, edit)
    await write_endpoint(cluster, SYSTEM, FIRST)
    found = await cluster.get(ENDPOINT_SLICES, SYSTEM, IPV4)
    for field in ("addressType", "endpoints", "ports"):
        assert found[field] == right[field]
    assert found["metadata"]["labels"] == right["metadata"]["labels"]


@pytest.mark.parametrize("code", [0, 403])
async def test_leader_tries_until_its_address_is_written(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = with_empty_slices()
    for _ in range(3):
        cluster.fail_next("replace EndpointSlice", code, "refused")
    taking = asyncio.create_task(take_endpoint(cluster, SYSTEM, FIRST))
    await asyncio.sleep(2.5 * RETRY_SECONDS)
    assert not taking.done(), "no agent would find it"
    await taking
    assert await told(cluster) == [FIRST.address]
    [record] = [each for each in caplog.records if "no agent finds this leader" in each.message]
    assert (record.levelname, "refused" in record.message) == ("ERROR", True)


async def test_slice_that_is_missing_is_an_error() -> None:
    with pytest.raises(ClusterError, match="not found"):
        await write_endpoint(CountedCluster(), SYSTEM, FIRST)


async def test_late_write_of_an_earlier_leader_is_undone() -> None:
    cluster = with_empty_slices()
    await write_endpoint(cluster, SYSTEM, SECOND)
    keeping = asyncio.create_task(keep_endpoint(cluster, SYSTEM, SECOND))
    await write_endpoint(cluster, SYSTEM, FIRST)
    await asyncio.sleep(CHECK_SECONDS + 0.1)
    assert await told(cluster) == [SECOND.address]
    await write_endpoint(cluster, SYSTEM, FIRST)
    cluster.fail_next("get EndpointSlice", 503)
    await asyncio.sleep(CHECK_SECONDS + RETRY_SECONDS + 0.1)
    keeping.cancel()
    assert await told(cluster) == [SECOND.address]
