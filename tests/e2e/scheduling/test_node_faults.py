"""Nodes that report a fault, by a taint and a condition put on them by hand: what that costs a job."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.job_under_test import StartJob, run_kubectl
from tests.e2e.kind_nodes import cordoned, worker_node_without_the_operator
from tests.e2e.scheduling.test_announced_ends import events, start, steps, tainted, until_replaced, until_steps
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

XID = "nvidia.com/gpu-xid-error"
MEMORY = "GpuMemWatch"


def set_condition(node: str, condition: dict[str, str]) -> None:
    patch = json.dumps({"status": {"conditions": [condition]}})
    run_kubectl("patch", "node", node, "--subresource=status", "--type=strategic", "-p", patch)


@contextmanager
def reporting(node: str, kind: str) -> Iterator[None]:
    """A node with a condition that is True."""
    set_condition(node, {"type": kind, "status": "True", "reason": "HardwareFailure", "message": "[DCGM_FR_FAULTY_MEMORY]"})
    try:
        yield
    finally:
        set_condition(node, {"type": kind, "$patch": "delete"})


def test_taint_of_nvsentinel_costs_a_job_with_the_library_no_step_and_no_worker_its_process(start_job: StartJob) -> None:
    job = start(start_job, "train_elastic.py", "elastic.yaml")
    leader = job.members()[0]
    node, leaving = worker_node_without_the_operator(job)
    with tainted(node, XID, "NoSchedule"):
        until_replaced(job, leaving)
        found = until_steps(job, leader, len(steps(job, leader)) + 20)
        assert job.status["round"] == 2, "one round: the replacement was ready before the worker left"
    numbers = [number for number, _ in found]
    assert numbers == list(range(1, len(numbers) + 1)), "each step was computed once"
    assert {world for _, world in found} == {3}, "no worker was missing"
    [note] = events(job, "NodeEnding")
    assert f"Node {node} reports a fault by taint {XID}" in note
    assert leaving in note
    assert job.status["failures"] == 0


def test_worker_stays_on_a_node_with_a_condition_until_there_is_room_elsewhere(start_job: StartJob) -> None:
    job = start(start_job, "train.py")
    members = job.members()
    node, leaving = worker_node_without_the_operator(job)
    others = [name.removeprefix("node/") for name in run_kubectl("get", "nodes", "-o", "name").stdout.split()]
    others.remove(node)
    with cordoned(*others), reporting(node, MEMORY):
        until(lambda: len(job.pods()) == 4, "a replacement")
        job.until(lambda _: job.condition("Resizing").get("reason") == "NodeEnding", "the condition")
        why = job.condition("Resizing")["message"]
        assert f"{leaving} leaves node {node}, which reports a fault by condition {MEMORY}" in why
        time.sleep(3)  # nothing is to happen
        assert (job.status["round"], job.members()) == (1, members)
        run_kubectl("uncordon", *others)
        until_replaced(job, leaving)
        assert job.status["failures"] == 0
        assert all(pod["spec"].get("nodeName") != node for pod in job.pods() if pod["metadata"]["name"] in job.members())
