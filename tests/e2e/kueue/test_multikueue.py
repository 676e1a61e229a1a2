"""Both sides of MultiKueue, one at a time on one cluster: its controller's writes are made by hand.

What it writes and when: Kueue's pkg/controller/admissionchecks/multikueue/workload.go and externalframeworks/adapter.go.
"""

import json

import pytest

from tests.e2e.job_under_test import JobUnderTest
from tests.e2e.kueue.admission_checks import admission_check, set_check
from tests.e2e.kueue.conftest import QUEUE_SECONDS, MakeQueue, StartQueued
from tests.e2e.kueue.workloads import Workload, condition
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("operator_with_queues")]

PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"


def test_the_copy_of_a_job_runs_by_the_workload_that_came_with_it(
    make_queue: MakeQueue, start_queued: StartQueued, namespace: str
) -> None:
    queue = make_queue(3)
    copied = queue.workload("copied", None, 2)
    copied.until("Admitted")
    job = start_queued("job", 3, 2, labels={PREBUILT: "copied", "kueue.x-k8s.io/multikueue-origin": "multikueue"})
    job.until_world(3, QUEUE_SECONDS)
    job.until_stepping(job.members()[0], 3)
    (owner,) = copied.get()["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (job.get()["metadata"]["uid"], True)
    assert {workload.name for workload in Workload.all_in(namespace)} == {"copied", "job-extra-1"}, "it grows by its own extras"
    until(lambda: copied.holds("PodsReady"), "readiness to be reported")
    queue.until_used(3)

    # The manager cluster has evicted the job: it asks this cluster to do the same.
    conditions = [*copied.status["conditions"], condition("DeactivationTarget", "True", "EvictedOnManagerCluster")]
    copied.patch_status({"conditions": conditions})
    until(lambda: not job.pods(), lambda: f"the pods to go: {job.status}", QUEUE_SECONDS)
    until(lambda: "admission" not in copied.status, "quota to be released")
    queue.until_used(0)
    assert job.status["failures"] == 0


def test_a_job_without_its_workload_says_which_is_missing(make_queue: MakeQueue, start_queued: StartQueued) -> None:
    queue = make_queue(2)
    job = start_queued("job", 2, 1, labels={PREBUILT: "made"})
    until(lambda: "Workload made" in job.condition("Running").get("message", ""), lambda: f"the reason: {job.status}")
    queue.workload("made", None, 1)
    job.until_world(2, QUEUE_SECONDS)


def set_status(job: JobUnderTest, **status: int) -> None:
    """What MultiKueue copies from the worker cluster."""
    job.kubectl("patch", "epj", job.name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def test_a_delegated_job_gets_quota_and_no_pods(make_queue: MakeQueue, start_queued: StartQueued, namespace: str) -> None:
    with admission_check(namespace):
        queue = make_queue(4, checks=[namespace])
        job = start_queued("job", 4, 2, managed_by="kueue.x-k8s.io/multikueue")
        base = Workload("job-base", namespace)
        until(lambda: Workload.all_in(namespace) == [base], "the job's Workload")
        base.until("QuotaReserved")
        set_check(base, namespace, "Ready")
        base.until("Admitted")
        set_status(job, replicas=2, readyReplicas=2)
        base.until("PodsReady")
        assert Workload.all_in(namespace) == [base], "it has no extras here"
        queue.until_used(2)

        set_check(base, namespace, "Retry")
        base.until("Evicted")
        assert base.remains(lambda it: it.holds("QuotaReserved")), "its pods run on the other cluster"
        set_status(job, replicas=0, readyReplicas=0)
        # Released, it is tried again, and has quota at once: its check begins again.
        base.until("Evicted", "False")
        assert base.status["admissionChecks"][0]["state"] == "Pending"
        assert not job.pods()
        assert "conditions" not in job.status, "its status is the other cluster's"
        job.kubectl("delete", "epj", "job")
        until(lambda: not Workload.all_in(namespace), "the Workload to go with its job")
