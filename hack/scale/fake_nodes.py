"""Nodes without machines: kwok stands in for their kubelets. Their pods are said to run, but no agent speaks in them."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kubernetes.client.exceptions import NotFoundException
from measure.kind_cluster import FILES, KUBECONFIG

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Api  # the import takes a second

KWOK, STAGES, LOG = FILES / "bin" / "kwok", FILES / "kwok-stages.yaml", FILES / "logs" / "fake-nodes.log"
LABEL = "elasticpytorch.dev/fake-node"  # hack/kind/health.sh knows it, too
PODS_PER_NODE = 120  # of the 254 addresses of a /24: kwok takes more than one for some pods, and then those of the next range
START_SECONDS = 60.0
STOP_SECONDS = 10.0

# What a pod needs to be placed on these nodes and nowhere else.
PLACEMENT: dict[str, Any] = {
    "nodeSelector": {LABEL: "true"},
    "tolerations": [{"key": LABEL, "operator": "Exists", "effect": "NoSchedule"}],
}


@contextmanager
def fake_nodes(core: "CoreV1Api", count: int) -> Iterator[None]:
    """Ready nodes, removed at the end together with the process that keeps them alive."""
    assert KWOK.exists() and STAGES.exists(), "there is no kwok: run `make kwok`"
    remove_nodes(core)  # an earlier run that was killed may have left some
    command = [
        str(KWOK),
        f"--kubeconfig={KUBECONFIG}",
        f"--config={STAGES}",
        f"--manage-nodes-with-label-selector={LABEL}=true",
        "--node-lease-duration-seconds=40",
    ]
    with LOG.open("w") as log:
        # In a session of its own Ctrl-C does not reach it: it is needed until the pods have gone.
        kwok = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        for index in range(count):
            core.create_node(node(f"fake-{index}"))
        wait_until_ready(core, kwok, count)
        yield
    finally:
        remove_nodes(core)
        kwok.terminate()
        kwok.wait(STOP_SECONDS)


def node(name: str) -> Any:
    """A node that keeps other pods away. It has no address, so that the pod network lays no route to its pods."""
    room = {"cpu": "1k", "memory": "1Ti", "pods": str(PODS_PER_NODE)}
    return {
        "metadata": {"name": name, "labels": {LABEL: "true", "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": LABEL, "value": "true", "effect": "NoSchedule"}]},
        "status": {"addresses": [{"type": "Hostname", "address": name}], "capacity": room, "allocatable": room},
    }


def remove_nodes(core: "CoreV1Api") -> None:
    """Removes the nodes, and the pods that DaemonSets have put there: no kubelet would confirm their end."""
    nodes: list[Any] = core.list_node(label_selector=f"{LABEL}=true").items
    core.delete_collection_node(label_selector=f"{LABEL}=true")
    for node in nodes:
        pods: list[Any] = core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={node.metadata.name}").items
        for pod in pods:
            delete_pod_at_once(core, pod.metadata.namespace, pod.metadata.name)


def delete_pod_at_once(core: "CoreV1Api", namespace: str, name: str) -> None:
    """Does what `kubectl delete pod --grace-period=0 --force` does; the pod may be gone already."""
    with suppress(NotFoundException):
        core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)


def wait_until_ready(core: "CoreV1Api", kwok: subprocess.Popen[bytes], count: int) -> None:
    until = time.monotonic() + START_SECONDS
    while sum(is_ready(node) for node in core.list_node(label_selector=f"{LABEL}=true").items) < count:
        assert kwok.poll() is None, f"kwok has ended: see {LOG}"
        assert time.monotonic() < until, f"the fake nodes are not ready after {START_SECONDS:.0f} s: see {LOG}"
        time.sleep(0.5)


def is_ready(node: Any) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions or ())
