"""Nodes without machines: kwok reports that their pods run, but no agent is in them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from measure.api import Api, ApiError, pods_path
from measure.cluster import is_ready
from measure.kind_cluster import FILES, KUBECONFIG

KWOK, STAGES = FILES / "bin" / "kwok", FILES / "kwok-stages.yaml"
LOG = FILES / "logs" / "fake-nodes.log"
LABEL = "elasticpytorch.dev/fake-node"  # hack/kind/health.sh uses it, too
NODES = "/api/v1/nodes"
FAKE = f"labelSelector={LABEL}%3Dtrue"
# Of the 254 addresses of a /24, as kwok takes more than one for some pods.
PODS_PER_NODE = 120
START_SECONDS = 60.0
STOP_SECONDS = 10.0
LOOK_SECONDS = 0.5

PLACEMENT: dict[str, Any] = {
    "nodeSelector": {LABEL: "true"},
    "tolerations": [{"key": LABEL, "operator": "Exists", "effect": "NoSchedule"}],
}


@asynccontextmanager
async def fake_nodes(api: Api, count: int) -> AsyncIterator[None]:
    """Ready nodes, removed at the end with their kwok process."""
    assert KWOK.exists() and STAGES.exists(), "there is no kwok: run `make kwok`"
    await remove_nodes(api)  # an earlier run that was killed may have left some
    command = [
        str(KWOK),
        f"--kubeconfig={KUBECONFIG}",
        f"--config={STAGES}",
        f"--manage-nodes-with-label-selector={LABEL}=true",
        "--node-lease-duration-seconds=40",
    ]
    with LOG.open("w") as log:
        # In its own session, Ctrl-C does not reach it: it is needed until the pods are gone.
        streams: dict[str, Any] = {"stdout": log, "stderr": asyncio.subprocess.STDOUT}
        kwok = await asyncio.create_subprocess_exec(*command, **streams, start_new_session=True)
    try:
        for index in range(count):
            await api.ask("POST", NODES, node(f"fake-{index}"))
        async with asyncio.timeout(START_SECONDS):
            while sum(map(is_ready, await _fake(api))) < count:
                assert kwok.returncode is None, f"kwok has ended: see {LOG}"
                await asyncio.sleep(LOOK_SECONDS)
        yield
    finally:
        await remove_nodes(api)
        with suppress(ProcessLookupError):
            kwok.terminate()
        await asyncio.wait_for(kwok.wait(), STOP_SECONDS)


def node(name: str) -> dict[str, Any]:
    """A node that keeps other pods away, and has no address: no routes lead to its pods."""
    room = {"cpu": "1k", "memory": "1Ti", "pods": str(PODS_PER_NODE)}
    return {
        "metadata": {"name": name, "labels": {LABEL: "true", "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": LABEL, "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}],
            "capacity": room,
            "allocatable": room,
        },
    }


async def remove_nodes(api: Api) -> None:
    """Removes the nodes and the pods of DaemonSets there, whose end no kubelet would confirm."""
    nodes = await _fake(api)
    await api.ask("DELETE", f"{NODES}?{FAKE}")
    for name in (found["metadata"]["name"] for found in nodes):
        pods = (await api.ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}"))["items"]
        for metadata in (pod["metadata"] for pod in pods):
            with suppress(ApiError):  # it may be gone already
                path = pods_path(metadata["namespace"], metadata["name"])
                await api.ask("DELETE", path, {"gracePeriodSeconds": 0})


async def _fake(api: Api) -> list[dict[str, Any]]:
    return list((await api.ask("GET", f"{NODES}?{FAKE}"))["items"])
