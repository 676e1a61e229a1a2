"""Writes the leader's address into an EndpointSlice of the agents' Service, beside the one that Kubernetes keeps by the label.

The controller manager keeps that one. It exits when the API server is away for ten seconds, and a kubelet may wait five minutes before it
starts it again. Until then its EndpointSlice has an earlier leader, so that no agent would reach this one. A kube-proxy takes the addresses
of all EndpointSlices together. Where a cluster does not permit the write, as OpenShift may, the label has to do.
"""

import asyncio
import ipaddress
import logging
from dataclasses import dataclass

from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.names import OPERATOR
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError

logger = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
NAME = f"{OPERATOR}-leader"
PORT_NAME = "agents"  # of the Service


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a replica listens to agents.

    Attributes:
        pod: its name.
        uid: of the pod.
        address: an IP address.
        port: a number.
    """

    pod: str
    uid: str
    address: str
    port: int


def endpoint_slice(namespace: str, endpoint: Endpoint) -> Manifest:
    """The EndpointSlice (discovery.k8s.io/v1) of a leader. It is its pod's, and is removed after it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": endpoint.pod, "uid": endpoint.uid}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": namespace,
            "name": NAME,
            "labels": {"kubernetes.io/service-name": OPERATOR, "endpointslice.kubernetes.io/managed-by": OPERATOR},
            "ownerReferences": [owner],
        },
        "addressType": f"IPv{ipaddress.ip_address(endpoint.address).version}",
        "endpoints": [{"addresses": [endpoint.address], "conditions": {"ready": True}}],
        "ports": [{"name": PORT_NAME, "port": endpoint.port, "protocol": "TCP", "appProtocol": "https"}],
    }


async def write_endpoint(cluster: Cluster, namespace: str, endpoint: Endpoint) -> str:
    """Makes the EndpointSlice name a leader; returns why it could not, empty if it could."""
    wanted = endpoint_slice(namespace, endpoint)
    try:
        found = await cluster.get_endpoint_slice(namespace, NAME)
        if found is None:
            await cluster.put_endpoint_slice(wanted)
        elif not _names(found, wanted):
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            await cluster.put_endpoint_slice({**wanted, "metadata": {**wanted["metadata"], **version}})
    except ClusterError as error:
        return str(error)
    return ""


async def keep_endpoint(cluster: Cluster, namespace: str, endpoint: Endpoint) -> None:
    """Corrects the EndpointSlice until it is cancelled: it may be deleted, or a late write of an earlier leader may come."""
    told = ""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        failure = await write_endpoint(cluster, namespace, endpoint)
        if failure and failure != told:  # told once: a cluster that refuses it goes on refusing it
            logger.warning("cannot write the leader's EndpointSlice: %s", failure)
        told = failure


def _names(found: Manifest, wanted: Manifest) -> bool:
    """Whether an EndpointSlice has the leader's address; the API server adds fields of its own to it."""
    [endpoint] = wanted["endpoints"]
    addresses = [there["addresses"] for there in found.get("endpoints") or ()]
    owners = [owner["uid"] for owner in found["metadata"].get("ownerReferences") or ()]
    return addresses == [endpoint["addresses"]] and owners == [wanted["metadata"]["ownerReferences"][0]["uid"]]
