"""Jobs that ask for accelerators, which nodes say they have: the scheduler needs no driver."""

import json
from collections.abc import Iterator

import pytest
from measure.kind_cluster import CONTROL_PLANE

from tests.e2e.job_under_test import StartJob, run_kubectl
from tests.waiting import until

pytestmark = pytest.mark.e2e

RESOURCE, DEVICES = "nvidia.com/gpu", 2
PATH = "/status/capacity/nvidia.com~1gpu"

# Rank 0 goes on for long enough to be seen in the status.
TELL = """\
import os
import time
import torch.distributed as dist

dist.init_process_group("gloo")
found = os.statvfs("/dev/shm")
place = f"rank {dist.get_rank()} of {dist.get_world_size()} local {os.environ['LOCAL_RANK']}"
# In one write: the processes of a pod share its log.
os.write(1, f"{place} shared memory {found.f_frsize * found.f_blocks >> 20}\\n".encode())
for _ in range(100):
    dist.barrier()
    time.sleep(0.2)
"""


def patch(node: str, operation: dict[str, str]) -> None:
    run_kubectl(
        "patch", "node", node, "--subresource=status", "--type=json", "-p", json.dumps([operation])
    )


def allocatable(node: str) -> str:
    found: dict[str, str] = json.loads(run_kubectl("get", "node", node, "-o", "json").stdout)[
        "status"
    ]["allocatable"]
    return found.get(RESOURCE, "0")


@pytest.fixture
def nodes_with_devices() -> Iterator[list[str]]:
    """The workers of the cluster, each with devices in its status, advertised by hand."""
    names = [
        node["metadata"]["name"]
        for node in json.loads(run_kubectl("get", "nodes", "-o", "json").stdout)["items"]
    ]
    nodes = [name for name in names if name != CONTROL_PLANE]
    try:
        for node in nodes:
            patch(node, {"op": "add", "path": PATH, "value": str(DEVICES)})
        until(
            lambda: all(allocatable(node) == str(DEVICES) for node in nodes),
            "the kubelets to take the devices up",
        )
        yield nodes
    finally:
        for node in nodes:
            patch(node, {"op": "replace", "path": PATH, "value": "0"})


@pytest.mark.long
def test_a_worker_runs_a_process_for_each_device_and_has_shared_memory(
    start_job: StartJob, nodes_with_devices: list[str]
) -> None:
    job = start_job(
        script=TELL,
        replicas=2,
        minReplicas=2,
        maxReplicas=2,
        resources={
            "limits": {RESOURCE: str(DEVICES)},
            "requests": {"cpu": "50m", "memory": "256Mi"},
        },
    )
    job.until(lambda status: status.get("worldSize") == 2 * DEVICES, "a world of all devices", 180)
    status = job.until(lambda status: status.get("state") in ("Complete", "Failed"), "the end", 180)
    lines = [
        line.split()
        for pod in job.pods()
        for line in job.logs(pod["metadata"]["name"])
        if line.startswith("rank ")
    ]
    assert status["state"] == "Complete", lines
    assert {(int(rank), int(local)) for _, rank, _, _, _, local, *_ in lines} == {
        (0, 0),
        (1, 1),
        (2, 0),
        (3, 1),
    }
    assert all(int(line[-1]) > 64 for line in lines), "more than a container has by itself"
    assert {pod["spec"]["nodeName"] for pod in job.pods()} <= set(nodes_with_devices)
