"""Nodes die, freeze, are drained, fill up and come back; the control plane goes away for a while."""

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise

import pytest
from measure.kind_cluster import CONTROL_PLANE

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.e2e.kind_nodes import cordoned, frozen, killed, worker_node_without_the_operator
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

ENDLESS = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]


def step_times(job: JobUnderTest, pod: str) -> list[float]:
    """When rank 0 took its steps, seconds since the epoch."""
    return [float(m[1]) for line in job.logs(pod) if line.startswith("STEP") and (m := re.search(r"time=([\d.]+)", line))]


def start_whole(start_job: StartJob, **spec: object) -> JobUnderTest:
    job = start_job(args=ENDLESS, **spec)
    job.until_world(3)
    job.until_stepping(job.members()[0], 3)
    return job


@pytest.mark.parametrize("fault", [killed, pytest.param(frozen, marks=pytest.mark.long)])
def test_lost_node_is_survived_and_its_worker_replaced(
    start_job: StartJob, fault: Callable[[str], AbstractContextManager[None]]
) -> None:
    job = start_whole(start_job)
    leader = job.members()[0]
    node, lost = worker_node_without_the_operator(job)
    with fault(node):
        since = time.time()
        job.until(lambda status: status["round"] > 1, "a round without it", 30)
        job.until(lambda status: status["worldSize"] == 3, "the old size again", 60)
        assert lost not in job.members()
        after = [at for at in step_times(job, leader) if at > since]
        gap = max(b - a for a, b in pairwise([since, *after, time.time()]))
        assert gap < 20, f"training stood still for {gap:.1f} s"
    time.sleep(5)
    status = job.status
    assert (status["worldSize"], status["failures"]) == (3, 0)
    assert lost not in job.members(), "what comes back from a lost node finds no place"
    assert status["round"] <= 4
    until(lambda: lost not in [pod["metadata"]["name"] for pod in job.pods()], "the lost pod to go once its node is back")


def test_drained_node_costs_no_failure(start_job: StartJob) -> None:
    job = start_whole(start_job)
    leader = job.members()[0]
    node, drained = worker_node_without_the_operator(job)
    try:
        selector = f"--pod-selector=elasticpytorch.dev/job-name={job.name}"
        run_kubectl("drain", node, selector, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s")
        job.until(lambda status: status["worldSize"] == 3 and status["round"] > 1, "the old size again", 60)
        assert drained not in job.members()
        assert job.status["failures"] == 0
        reasons = [line for line in job.logs(leader) if "WorkerLeaving" in line]
        assert len(reasons) == 1, "the group was formed anew because the worker was leaving"
    finally:
        run_kubectl("uncordon", node)


def test_trains_with_what_fits_and_grows_when_there_is_room(start_job: StartJob) -> None:
    # More than half a node's processors each: one worker a node.
    resources = {"requests": {"cpu": "1100m"}}
    with cordoned("elastic-pytorch-worker3"):
        job = start_job(args=ENDLESS, resources=resources, replicas=4, minReplicas=2, resizePolicy={"settleSeconds": 1})
        status = job.until_world(2)
        job.until(lambda _: "Insufficient cpu" in job.condition("Degraded").get("message", ""), "the reason")
        assert job.condition("Degraded")["status"] == "True"
        assert status["state"] == "Resizing"
    job.until_world(3)
    job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
    job.until_world(2)
    job.until(lambda _: len([p for p in job.pods() if p["status"]["phase"] == "Pending"]) == 0, "no Pending pod")
    assert job.status["failures"] == 0


def test_api_server_away_is_not_noticed_by_training(start_job: StartJob) -> None:
    job = start_whole(start_job)
    leader = job.members()[0]
    since = time.time()
    with frozen(CONTROL_PLANE):
        time.sleep(25)
    steps = [at for at in step_times(job, leader) if at > since]
    assert len(steps) > 100
    assert max(b - a for a, b in pairwise(steps)) < 3
    assert job.status["round"] == 1
    job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
    job.until_world(2, 60)
