"""Nodes that announce their end, by taints and labels put on them by hand: what that costs a job."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.e2e.kind_nodes import worker_node_without_the_operator
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

SPOT = "aws-node-termination-handler/spot-itn"
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
MAINTENANCE = "cloud.google.com/active-node-maintenance"


@contextmanager
def tainted(node: str, key: str, effect: str) -> Iterator[None]:
    """A node with a taint."""
    run_kubectl("taint", "node", node, f"{key}=now:{effect}", "--overwrite")
    try:
        yield
    finally:
        run_kubectl("taint", "node", node, f"{key}:{effect}-", check=False)


@contextmanager
def labelled(node: str, key: str, value: str) -> Iterator[None]:
    """A node with a label."""
    run_kubectl("label", "node", node, f"{key}={value}", "--overwrite")
    try:
        yield
    finally:
        run_kubectl("label", "node", node, f"{key}-")


def start(start_job: StartJob, script: str, file: str = "job.yaml", **spec: object) -> JobUnderTest:
    job = start_job(file=file, args=[f"/examples/all-reduce/{script}", "--checkpoint-dir", "/checkpoints"], **spec)
    job.until_world(3)
    job.until_stepping(job.members()[0], 3)
    return job


def events(job: JobUnderTest, reason: str) -> list[str]:
    found = json.loads(job.kubectl("get", "events", "--field-selector", f"reason={reason}", "-o", "json"))["items"]
    return [event["message"] for event in found]


def until_replaced(job: JobUnderTest, worker: str) -> None:
    job.until(lambda status: status["worldSize"] == 3 and worker not in job.members(), "another in its place", 120)


def steps(job: JobUnderTest, pod: str) -> list[tuple[int, int]]:
    """Number and world size of the steps that a pod has told of as rank 0."""
    found = [re.match(r"STEP (\d+) world=(\d+) ", line) for line in job.logs(pod)]
    return [(int(m[1]), int(m[2])) for m in found if m]


def until_steps(job: JobUnderTest, pod: str, count: int) -> list[tuple[int, int]]:
    """Waits until rank 0 has reported that many steps; returns them."""
    until(lambda: len(steps(job, pod)) >= count, lambda: f"{count} steps; the last are {steps(job, pod)[-3:]}")
    return steps(job, pod)


def test_spot_notice_costs_a_job_with_the_library_no_step_and_no_worker_its_process(start_job: StartJob) -> None:
    job = start(start_job, "train_elastic.py", "elastic.yaml")
    leader = job.members()[0]
    node, leaving = worker_node_without_the_operator(job)
    with tainted(node, SPOT, "NoSchedule"):
        until_replaced(job, leaving)
        found = until_steps(job, leader, len(steps(job, leader)) + 20)
        assert job.status["round"] == 2, "one round: the replacement was ready before the worker left"
        assert all(pod["spec"]["nodeName"] != node for pod in job.pods() if not pod["metadata"].get("deletionTimestamp"))
    numbers = [number for number, _ in found]
    assert numbers == list(range(1, len(numbers) + 1)), "each step was computed once"
    assert {world for _, world in found} == {3}, "no worker was missing"
    assert len([line for line in job.logs(leader) if "workers started in" in line]) == 1
    [note] = events(job, "NodeEnding")
    assert node in note
    assert SPOT in note
    assert leaving in note
    assert any(SPOT in note for note in events(job, "WorkerLeaving"))
    assert job.status["failures"] == 0


@pytest.mark.long
def test_maintenance_costs_a_plain_job_one_orderly_restart(start_job: StartJob) -> None:
    job = start(start_job, "train.py")
    node, leaving = worker_node_without_the_operator(job)
    with labelled(node, MAINTENANCE, "ONGOING"):
        until_replaced(job, leaving)
        assert job.status["round"] == 2
        assert (job.status["failures"], job.status["recentInterruptions"][-1]["cause"]) == (0, "WorkerLeaving")
        replaced = [pod["spec"]["nodeName"] for pod in job.pods() if pod["metadata"]["name"] in job.members()]
        assert node not in replaced, "no taint keeps new pods from the node, but the operator does"


def test_announcement_that_is_withdrawn_changes_nothing(start_job: StartJob) -> None:
    job = start(start_job, "train.py")
    members = job.members()
    node, worker = worker_node_without_the_operator(job)
    with tainted(node, CANDIDATE, "PreferNoSchedule"):
        time.sleep(3)  # nothing is to happen
    assert (job.status["round"], job.members()) == (1, members)
    # No room for a replacement: it waits, and is gone when it is not needed any more.
    others = [name.removeprefix("node/") for name in run_kubectl("get", "nodes", "-o", "name").stdout.split()]
    run_kubectl("cordon", *(name for name in others if name != node))
    try:
        with tainted(node, "karpenter.sh/disrupted", "NoSchedule"):
            job.until(lambda _: job.condition("Resizing").get("reason") == "NodeEnding", "the condition")
            assert f"{worker} leaves node {node}" in job.condition("Resizing")["message"]
            why = job.condition("Resizing")["message"]
            assert "karpenter.sh/disrupted" in why
            until(lambda: len(job.pods()) == 4, "a replacement")
        until(lambda: len(job.pods()) == 3, "the replacement to go")
        assert (job.status["round"], job.members()) == (1, members)
    finally:
        run_kubectl("uncordon", *others)


@pytest.mark.long
def test_first_to_go_when_the_job_shrinks_is_on_a_node_that_may_end(start_job: StartJob) -> None:
    job = start(start_job, "train.py")
    worker = next(worker for worker in job.status["workers"] if worker["index"] == 0)
    with tainted(worker["node"], CANDIDATE, "PreferNoSchedule"):
        time.sleep(2)  # for the watch of nodes
        job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
        job.until_world(2)

        assert worker["name"] not in job.members()
