"""Nodes announce their end, report faults, are drained, die and freeze; the control plane leaves.

The tests share a job of the training library: it loses no step when a node goes in an orderly way,
and one at most when it dies.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import pytest
from measure.kind_cluster import CONTROL_PLANE

from tests.e2e.job_under_test import (
    ENDLESS,
    ENDLESS_ELASTIC,
    JobUnderTest,
    StartJob,
    members_of,
    run_kubectl,
    start_whole,
)
from tests.e2e.kind_nodes import (
    cordoned,
    frozen,
    killed,
    labelled,
    reporting,
    tainted,
    worker_node_without_the_operator,
)
from tests.e2e.training.test_training_library import steps
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

SPOT = "aws-node-termination-handler/spot-itn"
MEMORY = "GpuMemWatch"
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
MAINTENANCE = "cloud.google.com/active-node-maintenance"


@pytest.fixture
def job(start_shared_job: StartJob) -> JobUnderTest:
    """Three workers that train on three nodes: those who have left one share another."""
    job = start_whole(start_shared_job, file="elastic.yaml", args=ENDLESS_ELASTIC)
    while guests := guests_of(job.until_world(3)):
        job.kubectl("delete", "pod", guests[-1], "--wait=false")
        job.until_replaced(guests[-1], 3)
    # The status has a group as soon as it is to form, and that takes the names of the cluster's
    # DNS.
    until_more_steps(job, job.members()[0], 10)
    return job


def guests_of(status: dict[str, Any]) -> list[str]:
    """The members, other than rank 0, on a node that has another one."""
    members = members_of(status)
    places = Counter(worker["node"] for worker in members)
    return [worker["name"] for worker in members[1:] if places[worker["node"]] > 1]


def until_more_steps(job: JobUnderTest, pod: str, count: int) -> list[tuple[int, int, float]]:
    """Waits until rank 0 has told of some steps more; returns all."""
    wanted = len(steps(job, pod)) + count
    until(
        lambda: len(steps(job, pod)) >= wanted,
        lambda: f"{wanted} steps; the last are {steps(job, pod)[-3:]}",
    )
    return steps(job, pod)


def numbers(found: list[tuple[int, int, float]]) -> list[int]:
    return [number for number, _, _ in found]


def in_turn(found: list[tuple[int, int, float]]) -> bool:
    """Whether each step was computed once, and none is left out."""
    return all(after == before + 1 for before, after in pairwise(numbers(found)))


def processes(job: JobUnderTest, pod: str) -> int:
    """How often the training of a pod has been started."""
    return sum("workers started in" in line for line in job.logs(pod))


def assert_left_without_a_loss(
    job: JobUnderTest, leader: str, since: int, started: int
) -> list[tuple[int, int, float]]:
    """Each step was computed once, by lasting processes; returns the steps since the first."""
    found = until_more_steps(job, leader, 20)[since - 1 :]
    assert in_turn(found), found
    assert processes(job, leader) == started
    assert job.status["failures"] == 0
    return found


def test_taint_costs_no_step_no_worker_its_process_and_one_round(job: JobUnderTest) -> None:
    first, leader = job.status["round"], job.members()[0]
    since, started = len(steps(job, leader)), processes(job, leader)
    node, leaving = worker_node_without_the_operator(job)
    with tainted(node, SPOT, "NoSchedule"):
        job.until_replaced(leaving, 3)
        found = assert_left_without_a_loss(job, leader, since, started)
        assert job.status["round"] == first + 1, (
            "one round: the replacement was ready before the worker left"
        )
        assert all(
            pod["spec"]["nodeName"] != node
            for pod in job.pods()
            if not pod["metadata"].get("deletionTimestamp")
        )
    assert {world for _, world, _ in found} == {3}, "no worker was missing"
    job.until_event("NodeEnding", leaving, f"Node {node} announces its end by taint {SPOT}")
    job.until_event("WorkerLeaving", leaving, SPOT)


@pytest.mark.long
def test_announcement_that_is_withdrawn_changes_nothing(job: JobUnderTest) -> None:
    first, members = job.status["round"], job.members()
    node, worker = worker_node_without_the_operator(job)
    with tainted(node, CANDIDATE, "PreferNoSchedule"):
        time.sleep(3)  # nothing is to happen
    assert (job.status["round"], job.members()) == (first, members)
    # No room for a replacement: it waits, and is gone when it is not needed any more.
    with cordoned(*others_than(node)):
        with tainted(node, "karpenter.sh/disrupted", "NoSchedule"):
            job.until(
                lambda _: job.condition("Resizing").get("reason") == "NodeEnding", "the condition"
            )
            why = job.condition("Resizing")["message"]
            assert f"{worker} leaves node {node}" in why
            assert "karpenter.sh/disrupted" in why
            until(lambda: len(job.pods()) == 4, "a replacement")
        until(lambda: len(job.pods()) == 3, "the replacement to go")
        assert (job.status["round"], job.members()) == (first, members)


def others_than(node: str) -> list[str]:
    names = run_kubectl("get", "nodes", "-o", "name").stdout.split()
    return [name.removeprefix("node/") for name in names if name != f"node/{node}"]


def test_worker_stays_on_a_node_with_a_condition_until_there_is_room_elsewhere(
    job: JobUnderTest,
) -> None:
    first, members = job.status["round"], job.members()
    node, leaving = worker_node_without_the_operator(job)
    with cordoned(*(others := others_than(node))), reporting(node, MEMORY):
        until(lambda: len(job.pods()) == 4, "a replacement")
        job.until(
            lambda _: job.condition("Resizing").get("reason") == "NodeEnding", "the condition"
        )
        why = job.condition("Resizing")["message"]
        assert f"{leaving} leaves node {node}, which reports a fault by condition {MEMORY}" in why
        time.sleep(3)  # nothing is to happen
        assert (job.status["round"], job.members()) == (first, members)
        run_kubectl("uncordon", *others)
        job.until_replaced(leaving, 3)
        assert job.status["failures"] == 0
        assert all(
            pod["spec"].get("nodeName") != node
            for pod in job.pods()
            if pod["metadata"]["name"] in job.members()
        )


def test_drained_node_costs_no_step_and_no_failure(job: JobUnderTest) -> None:
    leader = job.members()[0]
    since, started, told = len(steps(job, leader)), processes(job, leader), len(job.logs(leader))
    node, drained = worker_node_without_the_operator(job)
    try:
        selector = f"--pod-selector=elasticpytorch.dev/job-name={job.name}"
        run_kubectl(
            "drain",
            node,
            selector,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--timeout=60s",
        )
        job.until_replaced(drained, 3)
    finally:
        run_kubectl("uncordon", node)
    found = assert_left_without_a_loss(job, leader, since, started)
    assert {world for _, world, _ in found} == {2, 3}
    reasons = [line for line in job.logs(leader)[told:] if "WorkerLeaving" in line]
    assert len(reasons) == 1, "the group was formed again because the worker was leaving"


def test_api_server_away_is_not_noticed_by_training(job: JobUnderTest) -> None:
    first, leader = job.status["round"], job.members()[0]
    since = time.time()
    with frozen(CONTROL_PLANE):
        time.sleep(15)  # the leader loses its lease after 4 s, and agents try less often after 10 s
    found = [at for _, _, at in steps(job, leader) if at > since]
    pauses = [b - a for a, b in pairwise([since, *found, time.time()])]
    assert len(found) > 60, f"{len(found)} steps; pauses: {sorted(pauses)[-3:]}"
    assert max(pauses[:-1]) < 3
    assert job.status["round"] == first
    job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
    job.until_world(2, 60)


@pytest.mark.parametrize("fault", [killed, pytest.param(frozen, marks=pytest.mark.long)])
def test_lost_node_costs_a_step_at_most_and_its_worker_is_replaced(
    job: JobUnderTest, fault: Callable[[str], AbstractContextManager[None]]
) -> None:
    first, leader = job.status["round"], job.members()[0]
    behind = len(steps(job, leader))
    node, lost = worker_node_without_the_operator(job)
    with fault(node):
        since = time.time()
        job.until(lambda status: status["round"] > first, "a round without it", 30)
        job.until(lambda status: status["worldSize"] == 3, "the old size again", 60)
        assert lost not in job.members()
        after = [at for _, _, at in steps(job, leader) if at > since]
        gap = max(b - a for a, b in pairwise([since, *after, time.time()]))
        assert gap < 20, f"training stood still for {gap:.1f} s"
        found = until_more_steps(job, leader, 20)[behind - 1 :]
    until(
        lambda: lost not in [pod["metadata"]["name"] for pod in job.pods()],
        "the lost pod to go once its node is back",
    )
    status = job.status
    assert (status["worldSize"], status["failures"]) == (3, 0)
    assert lost not in job.members(), "what comes back from a lost node finds no place"
    assert status["round"] <= first + 3
    done = numbers(found)
    assert len(done) - len(set(done)) <= 1
    assert sorted(set(done)) == list(range(min(done), max(done) + 1)), "and none is left out"


@pytest.mark.long
def test_maintenance_costs_a_plain_job_one_orderly_restart(start_job: StartJob) -> None:
    job = start_whole(start_job, args=ENDLESS)
    node, leaving = worker_node_without_the_operator(job)
    with labelled(node, MAINTENANCE, "ONGOING"):
        job.until_replaced(leaving, 3)
        assert job.status["round"] == 2
        assert (job.status["failures"], job.interruptions()[-1]["cause"]) == (0, "WorkerLeaving")
        replaced = [
            pod["spec"]["nodeName"]
            for pod in job.pods()
            if pod["metadata"]["name"] in job.members()
        ]
        assert node not in replaced, "no taint keeps new pods from the node, but the operator does"


@pytest.mark.long
def test_first_to_go_when_the_job_shrinks_is_on_a_node_that_may_end(start_job: StartJob) -> None:
    job = start_whole(start_job, args=ENDLESS)
    worker = next(worker for worker in job.status["workers"] if worker["index"] == 0)
    with tainted(worker["node"], CANDIDATE, "PreferNoSchedule"):
        time.sleep(2)  # for the watch of nodes
        job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
        job.until_world(2)
        assert worker["name"] not in job.members()
