"""Limits and the ends of jobs, on a real cluster."""

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.waiting import until

pytestmark = pytest.mark.e2e

SHORT = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "5"]

RETURNS_EARLY = """
import time
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(1, 100):
    dist.barrier()
    if step == 5 and dist.get_rank() == 0:
        break
    time.sleep(0.05)
"""


def until_gone(job: JobUnderTest, what: str) -> None:
    until(
        lambda: not job.kubectl("get", what, "-o", "name"),
        lambda: f"these to go:\n{job.kubectl('get', what)}",
    )


@pytest.mark.long
def test_job_that_hangs_meets_its_active_deadline(start_job: StartJob) -> None:
    job = start_job(script="import time; time.sleep(1000)", replicas=1, activeDeadlineSeconds=12)
    job.until(lambda status: status.get("state") == "Failed", "the deadline", 60)
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    until(
        lambda: not any(pod["status"]["phase"] == "Running" for pod in job.pods()),
        "the pods to end",
    )


@pytest.mark.long
def test_finished_job_goes_when_its_time_to_live_is_over(start_job: StartJob) -> None:
    job = start_job(args=SHORT, replicas=1, ttlSecondsAfterFinished=4)
    run_kubectl(
        "-n", job.namespace, "wait", "--for=condition=Complete", f"epj/{job.name}", "--timeout=60s"
    )
    until_gone(job, "epj,pods,services")


def test_job_of_another_controller_is_left_alone(start_job: StartJob) -> None:
    job = start_job(args=SHORT, managedBy="example.com/another")
    later = start_job(name="later", args=SHORT, suspend=True)
    later.until(
        lambda status: status.get("state") == "Suspended",
        "a job of this operator's that came after it",
    )
    assert job.pods() == []
    assert job.status == {}


@pytest.mark.long
def test_rank_that_returns_early_is_named(start_job: StartJob) -> None:
    job = start_job(
        script=RETURNS_EARLY, replicas=2, minReplicas=2, failurePolicy={"maxFailures": 1}
    )
    job.until(lambda status: status.get("state") in ("Complete", "Failed"), "the end", 60)
    failed = job.condition("Failed")
    assert "had returned while others still trained" in failed.get("message", "")
