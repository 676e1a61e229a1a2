"""The quota of jobs that stop: suspended, complete, deactivated, or evicted without an operator."""

import pytest

from tests.e2e.job_under_test import JobUnderTest, leading_operator, run_kubectl
from tests.e2e.kind_nodes import cordoned
from tests.e2e.kueue.conftest import HIGH_PRIORITY, QUEUE_SECONDS, MakeQueue, Owner, StartQueued
from tests.e2e.kueue.manager import configured
from tests.e2e.kueue.queued_jobs import starts, steps
from tests.e2e.kueue.workloads import Workload
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("operator_with_queues")]

READY_SECONDS = 60  # longer than two workers need to start
PAUSE_SECONDS = 15  # before Kueue tries an extra again that was not ready in time
OPERATOR = "deployment/elastic-pytorch-operator"


def set_suspended(job: JobUnderTest, suspended: bool) -> None:
    job.kubectl(
        "patch",
        "epj",
        job.name,
        "--type=merge",
        "-p",
        f'{{"spec": {{"suspend": {str(suspended).lower()}}}}}',
    )


def test_a_suspended_job_gives_its_quota_back_and_asks_again(
    make_queue: MakeQueue, start_queued: StartQueued
) -> None:
    queue = make_queue(3)
    job = start_queued("job", 3, 1)
    job.until_world(3, QUEUE_SECONDS)
    queue.until_used(3)
    set_suspended(job, True)
    queue.until_used(0)
    assert not job.pods()
    set_suspended(job, False)
    job.until(
        lambda status: status.get("worldSize") == 3 and status["state"] == "Running",
        "the job again",
        QUEUE_SECONDS,
    )
    queue.until_used(3)


def test_a_complete_job_gives_its_quota_back(
    make_queue: MakeQueue, start_queued: StartQueued
) -> None:
    queue = make_queue(2)
    job = start_queued("job", 2, 1, steps=20)
    job.until(lambda status: status.get("state") == "Complete", "the end of the job", QUEUE_SECONDS)
    queue.until_used(0)


def test_a_job_that_a_user_deactivates_stops_and_goes_on_when_it_is_active(
    make_queue: MakeQueue, start_queued: StartQueued, namespace: str
) -> None:
    queue = make_queue(2)
    job = start_queued("job", 2, 2)
    job.until_world(2, QUEUE_SECONDS)
    job.until_stepping(job.members()[0], 2)
    (base,) = Workload.all_in(namespace)
    base.patch({"spec": {"active": False}})
    until(lambda: not job.pods(), lambda: f"the pods to go: {job.status}", QUEUE_SECONDS)
    queue.until_used(0)
    (base,) = Workload.all_in(namespace)
    base.patch({"spec": {"active": True}})
    until(
        lambda: len(job.members()) == 2,
        lambda: f"the job to run again: {job.status}",
        QUEUE_SECONDS,
    )
    job.until_stepping(job.members()[0], 2)
    assert steps(job, job.members()[0])[0] > 1
    assert job.status["failures"] == 0


def test_an_eviction_while_no_operator_runs_is_honoured_by_the_next(
    make_queue: MakeQueue, start_queued: StartQueued, owner: Owner
) -> None:
    queue = make_queue(3)
    job = start_queued("job", 3, 2)
    job.until_world(3, QUEUE_SECONDS)
    leader = job.members()[0]
    job.until_stepping(leader, 3)
    there = leading_operator()["metadata"]["namespace"]
    run_kubectl("-n", there, "scale", OPERATOR, "--replicas=0")
    try:
        until(lambda: not operators(there), "the operators to be gone")
        high = queue.workload("high", owner, 3, priority=HIGH_PRIORITY)
        until(
            lambda: high.conditions().get("QuotaReserved", {}).get("status") == "False",
            "Kueue to look at it",
        )
        known = len(steps(job, leader))
        until(lambda: len(steps(job, leader)) > known + 5, "further steps")
        assert high.remains(lambda it: not it.holds("QuotaReserved"))
    finally:
        run_kubectl("-n", there, "scale", OPERATOR, "--replicas=2")
    high.until("Admitted", seconds=QUEUE_SECONDS)
    assert all(pod["status"]["phase"] in {"Failed", "Succeeded"} for pod in job.pods()), (
        "quota is free when its pods have ended"
    )
    assert job.status["failures"] == 0
    high.delete()
    until(
        lambda: len(job.members()) == 3,
        lambda: f"the job to run again: {job.status}",
        QUEUE_SECONDS,
    )
    job.until_stepping(job.members()[0], 3)
    assert steps(job, job.members()[0])[0] > known
    assert starts(job, job.members()[0]) == 1


def operators(namespace: str) -> list[str]:
    found = run_kubectl(
        "-n",
        namespace,
        "get",
        "pods",
        "-l",
        "app.kubernetes.io/name=elastic-pytorch-operator",
        "-o",
        "name",
    )
    return found.stdout.split()


def test_a_worker_that_finds_no_node_costs_its_own_quota_only(
    make_queue: MakeQueue, start_queued: StartQueued, namespace: str
) -> None:
    queue = make_queue(3)
    seconds = f"{READY_SECONDS}s"
    requeuing = {"backoffBaseSeconds": PAUSE_SECONDS}
    in_time = {"timeout": seconds, "recoveryTimeout": seconds, "requeuingStrategy": requeuing}
    with configured(waitForPodsReady=in_time):
        with cordoned("elastic-pytorch-worker3"):
            # More than half of a node: the third worker has none.
            job = start_queued("job", 3, 2, memory="13Gi")
            job.until_world(2, QUEUE_SECONDS)
            extra = Workload("job-extra-1", namespace)
            assert extra.until("Evicted", seconds=QUEUE_SECONDS)["reason"] == "PodsReadyTimeout"
            assert job.status["worldSize"] == 2
            queue.until_used(2)
        job.until_world(3, QUEUE_SECONDS)
        until(
            lambda: all(w.holds("PodsReady") for w in Workload.all_in(namespace)), "all to be ready"
        )
        assert job.status["failures"] == 0
        queue.until_used(3)
