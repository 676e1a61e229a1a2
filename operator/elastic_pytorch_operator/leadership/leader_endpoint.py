"""Points the agents' Service at the leader, which writes its address into an EndpointSlice.

The Service has no selector, because replicas on standby are ready, too. The chart renders an empty
EndpointSlice for each family of addresses, because `addressType` cannot be changed.
"""

import asyncio
import ipaddress
import logging
from dataclasses import dataclass
from typing import Any

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.names import OPERATOR
from elastic_pytorch_operator.api.resources import ENDPOINT_SLICES
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError

logger = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
RETRY_SECONDS = 0.5
PORT_NAME = "agents"  # of the Service


@dataclass(frozen=True, slots=True)
class Endpoint:
    pod: str
    uid: str
    address: str
    port: int
    node: str = ""
    service: str = OPERATOR


def endpoint_slice(namespace: str, endpoint: Endpoint) -> Manifest:
    family = f"IPv{ipaddress.ip_address(endpoint.address).version}"
    target = {"kind": "Pod", "namespace": namespace, "name": endpoint.pod, "uid": endpoint.uid}
    leader = {
        "addresses": [endpoint.address],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": target,
        **({"nodeName": endpoint.node} if endpoint.node else {}),
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": f"{endpoint.service}-{family.lower()}",
            "labels": {
                "kubernetes.io/service-name": endpoint.service,
                "endpointslice.kubernetes.io/managed-by": OPERATOR,
            },
        },
        "addressType": family,
        "endpoints": [leader],
        "ports": [
            {"name": PORT_NAME, "port": endpoint.port, "protocol": "TCP", "appProtocol": "https"}
        ],
    }


def node_of(found: Manifest, pod: str) -> str:
    """The node of a pod in an EndpointSlice; empty if that does not name the pod."""
    for there in found.get("endpoints") or ():
        if (there.get("targetRef") or {}).get("name") == pod:
            return there.get("nodeName") or ""
    return ""


async def write_endpoint(cluster: Cluster, namespace: str, endpoint: Endpoint) -> Manifest:
    """Returns the EndpointSlice as it was."""
    wanted = endpoint_slice(namespace, endpoint)
    found = await cluster.get(ENDPOINT_SLICES, namespace, wanted["metadata"]["name"])
    if not _says(found, wanted):
        metadata = found["metadata"]
        labels = {**(metadata.get("labels") or {}), **wanted["metadata"]["labels"]}
        await cluster.replace(
            ENDPOINT_SLICES, {**found, **wanted, "metadata": {**metadata, "labels": labels}}
        )
    return found


async def take_endpoint(cluster: Cluster, namespace: str, endpoint: Endpoint) -> Manifest:
    """Tries until it succeeds: before that, no agent finds this leader."""
    logged = ""
    while True:
        try:
            return await write_endpoint(cluster, namespace, endpoint)
        except ClusterError as error:
            if str(error) != logged:
                logger.error(
                    "no agent finds this leader: cannot write its address into the Service's "
                    "EndpointSlice: %s",
                    error,
                )
            logged = str(error)
            await asyncio.sleep(RETRY_SECONDS)


async def keep_endpoint(cluster: Cluster, namespace: str, endpoint: Endpoint) -> None:
    """Corrects the EndpointSlice after people and late writes of an earlier leader."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        await take_endpoint(cluster, namespace, endpoint)


def _says(found: Any, wanted: Any) -> bool:
    """Whether something holds all that is wanted; the API server adds further fields."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _says(found.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list) and len(found) == len(wanted) and all(map(_says, found, wanted))
        )
    return bool(found == wanted)
