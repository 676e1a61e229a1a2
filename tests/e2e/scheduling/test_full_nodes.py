"""Jobs with just the room of their nodes train with what fits, and beside an endless container."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.job_under_test import ENDLESS, JobUnderTest, StartJob, members_of
from tests.e2e.kind_nodes import kill_container
from tests.e2e.scheduling.slots import SLOT, give_slots
from tests.waiting import until

pytestmark = pytest.mark.e2e


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
    # Else it takes the grace period to end.
    "command": ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"],
    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
}
ENDED = ("Succeeded", "Failed")


def add_classic_sidecar(pod: dict[str, Any]) -> None:
    pod["containers"].append(SIDECAR)


def add_native_sidecar(pod: dict[str, Any]) -> None:
    pod["initContainers"] = [{**SIDECAR, "restartPolicy": "Always"}]


def phases(job: JobUnderTest) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in job.pods()}


def test_trains_with_what_fits_and_grows_when_there_is_room(
    start_job: StartJob, slot_nodes: list[str]
) -> None:
    give_slots(slot_nodes[:2], 1)
    resources = {"limits": {SLOT: "1"}, "requests": {"cpu": "50m", "memory": "256Mi"}}
    job = start_job(
        resources=resources,
        args=ENDLESS,
        replicas=4,
        minReplicas=2,
        resizePolicy={"settleSeconds": 1},
    )
    status = job.until_world(2)
    job.until(
        lambda _: f"Insufficient {SLOT}" in job.condition("Degraded").get("message", ""),
        "the reason",
    )
    assert job.condition("Degraded")["status"] == "True"
    assert status["state"] == "Resizing"
    give_slots(slot_nodes[2:], 1)
    job.until_world(3)
    job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
    job.until_world(2)
    job.until(
        lambda _: len([p for p in job.pods() if p["status"]["phase"] == "Pending"]) == 0,
        "no Pending pod",
    )
    assert job.status["failures"] == 0


@pytest.mark.parametrize(
    "add_sidecar", [pytest.param(add_classic_sidecar, marks=pytest.mark.long), add_native_sidecar]
)
def test_worker_is_replaced_on_a_full_node_and_the_end_of_the_job_frees_its_nodes(
    start_job: StartJob, slot_nodes: list[str], add_sidecar: Callable[[dict[str, Any]], None]
) -> None:
    give_slots(slot_nodes, 1)
    resources = {"limits": {SLOT: "1"}, "requests": {"cpu": "50m", "memory": "256Mi"}}
    job = start_job(script=SCRIPT, resources=resources, change_pod=add_sidecar)
    job.until_world(3, 120)
    leader, victim, _ = job.members()
    job.until_stepping(leader, 3)
    [lost] = [pod for pod in job.pods() if pod["metadata"]["name"] == victim]
    kill_container(lost)
    status = job.until(
        lambda status: status["round"] > 1 and status["worldSize"] == 3,
        "the old size on full nodes",
        180,
    )
    members = {worker["name"]: worker["node"] for worker in members_of(status)}
    assert victim not in members
    assert lost["spec"]["nodeName"] in members.values(), "its place was the only one"
    assert status["failures"] == 0
    job.kubectl("exec", leader, "--container=pytorch", "--", "touch", "/tmp/end")
    job.until(lambda status: status["state"] == "Complete", "the end", 120)
    until(
        lambda: all(phase in ENDED for phase in phases(job).values()),
        lambda: f"all pods to end: {phases(job)}",
    )
    if add_sidecar is add_native_sidecar:
        assert set(members) <= set(phases(job)), "what ends by itself is kept for its log"
