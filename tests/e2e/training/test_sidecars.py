"""Jobs whose pods hold a container that does not train and does not end by itself."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from measure.kind_cluster import CONTROL_PLANE

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.e2e.kind_nodes import docker
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

# Trains until it is told to end, by a file in the pod of any worker.
SCRIPT = """\
import time
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
step, end = 0, Path("/tmp/end")
while True:
    step += 1
    told = torch.tensor([float(end.exists())])
    dist.all_reduce(told)
    if dist.get_rank() == 0:
        print(f"STEP {step} world={dist.get_world_size()} ", flush=True)
    if told.item():
        break
    time.sleep(0.1)
dist.destroy_process_group()
"""

SIDECAR = {
    "name": "sidecar",
    "image": "elastic-pytorch-worker:dev",
    "imagePullPolicy": "IfNotPresent",
    "command": ["sleep", "infinity"],
    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
}
ENDED = ("Succeeded", "Failed")


def add_classic_sidecar(pod: dict[str, Any]) -> None:
    pod["containers"].append(SIDECAR)


def add_native_sidecar(pod: dict[str, Any]) -> None:
    pod["initContainers"] = [{**SIDECAR, "restartPolicy": "Always"}]


def more_than_half_a_node() -> str:
    """A request for processors of which each worker node has room for one."""
    nodes = json.loads(run_kubectl("get", "nodes", "-o", "json").stdout)["items"]
    cores = [node["status"]["allocatable"]["cpu"] for node in nodes if node["metadata"]["name"] != CONTROL_PLANE]
    return f"{max(int(c[:-1]) if c.endswith('m') else 1000 * int(c) for c in cores) * 55 // 100}m"


def kill_training_container(pod: dict[str, Any]) -> None:
    """Kills all processes of a pod's training container at once; the others run on."""
    [container] = [status for status in pod["status"]["containerStatuses"] if status["name"] == "pytorch"]
    task = container["containerID"].removeprefix("containerd://")
    docker("exec", pod["spec"]["nodeName"], "ctr", "-n", "k8s.io", "task", "kill", "--all", "--signal", "SIGKILL", task)


def phases(job: JobUnderTest) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in job.pods()}


@pytest.mark.parametrize("add_sidecar", [pytest.param(add_classic_sidecar, marks=pytest.mark.long), add_native_sidecar])
def test_worker_is_replaced_on_a_full_node_and_the_end_of_the_job_frees_its_nodes(
    start_job: StartJob, add_sidecar: Callable[[dict[str, Any]], None]
) -> None:
    resources = {"requests": {"cpu": more_than_half_a_node(), "memory": "256Mi"}}
    job = start_job(script=SCRIPT, resources=resources, change_pod=add_sidecar)
    job.until_world(3, 120)
    leader, victim, _ = job.members()
    job.until_stepping(leader, 3)
    [lost] = [pod for pod in job.pods() if pod["metadata"]["name"] == victim]
    kill_training_container(lost)
    status = job.until(lambda status: status["round"] > 1 and status["worldSize"] == 3, "the old size on full nodes", 180)
    members = {worker["name"]: worker["node"] for worker in status["workers"] if "rank" in worker}
    assert victim not in members
    assert lost["spec"]["nodeName"] in members.values(), "its place was the only one"
    assert status["failures"] == 0
    job.kubectl("exec", leader, "--container=pytorch", "--", "touch", "/tmp/end")
    job.until(lambda status: status["state"] == "Complete", "the end", 120)
    until(lambda: all(phase in ENDED for phase in phases(job).values()), lambda: f"all pods to end: {phases(job)}")
    if add_sidecar is add_native_sidecar:
        assert set(members) <= set(phases(job)), "what ends by itself is kept for its log"
