"""A job that changes or leaves its queue: its quota goes with its pods, if the policy lets it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.job_under_test import JobUnderTest, run_kubectl
from tests.e2e.kueue.conftest import QUEUE_SECONDS, MakeQueue, StartQueued
from tests.e2e.kueue.workloads import Workload
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("operator_with_queues")]

BINDING = ("validatingadmissionpolicybinding", "elastic-pytorch-operator-queue-changes")
LABEL = "kueue.x-k8s.io/queue-name"
REFUSAL = "set spec.suspend to true, change the label, and then set spec.suspend to false"


def label(job: JobUnderTest, change: str) -> str:
    """Changes the label; returns the API server's refusal, empty if there is none."""
    done = run_kubectl(
        "-n",
        job.namespace,
        "label",
        "epj",
        job.name,
        f"{LABEL}{change}",
        "--overwrite",
        check=False,
    )
    return done.stderr if done.returncode else ""


def set_suspended(job: JobUnderTest, suspended: bool) -> None:
    job.kubectl(
        "patch", "epj", job.name, "--type=merge", "-p", json.dumps({"spec": {"suspend": suspended}})
    )


@contextmanager
def without_the_policy() -> Iterator[None]:
    found = json.loads(run_kubectl("get", *BINDING, "-o", "json").stdout)
    run_kubectl("delete", *BINDING)
    try:
        yield
    finally:
        kept = {
            name: found["metadata"][name]
            for name in ("name", "labels", "annotations")
            if name in found["metadata"]
        }
        run_kubectl("apply", "-f", "-", input=json.dumps({**found, "metadata": kept}))


def test_a_job_changes_its_queue_while_it_is_suspended(
    make_queue: MakeQueue, start_queued: StartQueued
) -> None:
    first, second = make_queue(2), make_queue(2, local_name="other")
    job = start_queued("job", 2, 2)
    job.until_world(2, QUEUE_SECONDS)
    until(lambda: REFUSAL in label(job, "=other"), "the policy")
    set_suspended(job, True)
    assert label(job, "=other") == ""
    first.until_used(0)
    assert not job.pods()
    set_suspended(job, False)
    second.until_used(2)
    job.until(
        lambda status: status.get("worldSize") == 2 and status["state"] == "Running",
        "the job again",
        QUEUE_SECONDS,
    )


def test_a_job_that_leaves_its_queue_gives_its_quota_back_when_its_pods_are_gone(
    make_queue: MakeQueue, start_queued: StartQueued, namespace: str
) -> None:
    queue = make_queue(2)
    job = start_queued("job", 2, 2)
    job.until_world(2, QUEUE_SECONDS)
    before = {pod["metadata"]["uid"] for pod in job.pods()}
    with without_the_policy():
        until(lambda: not label(job, "-"), "the label to be taken off")

        def there() -> set[str]:
            return {pod["metadata"]["uid"] for pod in job.pods()}

        # Kueue is asked first: what it frees then belongs to no pod that the next answer shows.
        until(lambda: queue.used_workers() == 0, "the quota", QUEUE_SECONDS)
        assert not before & there()
    job.until(
        lambda status: status.get("worldSize") == 2 and status["state"] == "Running",
        "the job again",
        QUEUE_SECONDS,
    )
    # A finalizer of Kueue may keep it for a while.
    until(lambda: not Workload.all_in(namespace), "its Workload to be gone")
    assert job.status["failures"] == 0
