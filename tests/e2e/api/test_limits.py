"""Limits, suspension and the ends of jobs, on a real cluster."""

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.waiting import until

pytestmark = pytest.mark.e2e

ENDLESS = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]
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
    until(lambda: not job.kubectl("get", what, "-o", "name"), lambda: f"these to go:\n{job.kubectl('get', what)}")


@pytest.mark.long
def test_job_that_hangs_meets_its_active_deadline(start_job: StartJob) -> None:
    job = start_job(script="import time; time.sleep(1000)", replicas=1, activeDeadlineSeconds=12)
    job.until(lambda status: status.get("state") == "Failed", "the deadline", 60)
    assert job.condition("Failed")["reason"] == "DeadlineExceeded"
    until(lambda: not any(pod["status"]["phase"] == "Running" for pod in job.pods()), "the pods to end")


@pytest.mark.long
def test_finished_job_goes_when_its_time_to_live_is_over(start_job: StartJob) -> None:
    job = start_job(args=SHORT, replicas=1, ttlSecondsAfterFinished=4)
    run_kubectl("-n", job.namespace, "wait", "--for=condition=Complete", f"epj/{job.name}", "--timeout=60s")
    until_gone(job, "epj,pods,services")


@pytest.mark.long
def test_allowed_sizes_round_down_and_say_so(start_job: StartJob) -> None:
    job = start_job(args=ENDLESS, replicas=3, resizePolicy={"allowedReplicas": [2, 4]})
    status = job.until_world(2)
    assert status["replicas"] == 2
    job.until_event("ScaleRefused", "3 workers are not one of")
    refused = run_kubectl("-n", job.namespace, "scale", f"epj/{job.name}", "--replicas=1", check=False)
    assert "allowedReplicas" in refused.stderr


@pytest.mark.long
def test_autoscaler_drives_the_size(start_job: StartJob) -> None:
    job = start_job(args=ENDLESS, replicas=3)
    job.until_world(3)
    job.kubectl("autoscale", f"epj/{job.name}", "--min=2", "--max=2", "--cpu-percent=50")
    status = job.until_world(2, 120)
    assert status["failures"] == 0
    assert job.get()["spec"]["replicas"] == 2


@pytest.mark.long
def test_gang_fails_when_a_pod_is_lost(start_job: StartJob) -> None:
    job = start_job(args=ENDLESS, failurePolicy={"onPodLoss": "FailJob"})
    job.until_world(3)
    victim = job.members()[1]
    job.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    job.until(lambda status: status["state"] == "Failed", "the end", 30)
    failed = job.condition("Failed")
    assert failed["reason"] == "PodLost"
    assert victim in failed["message"]


def test_job_of_another_controller_is_left_alone(start_job: StartJob) -> None:
    job = start_job(args=SHORT, managedBy="example.com/another")
    later = start_job(name="later", args=SHORT, suspend=True)
    later.until(lambda status: status.get("state") == "Suspended", "a job of this operator's that came after it")
    assert job.pods() == []
    assert job.status == {}


@pytest.mark.long
def test_rank_that_returns_early_is_named(start_job: StartJob) -> None:
    job = start_job(script=RETURNS_EARLY, replicas=2, minReplicas=2, failurePolicy={"maxFailures": 1})
    job.until(lambda status: status.get("state") in ("Complete", "Failed"), "the end", 60)
    failed = job.condition("Failed")
    assert "had returned while others still trained" in failed.get("message", "")


@pytest.mark.long
def test_script_that_is_not_there_is_named(start_job: StartJob) -> None:
    job = start_job(args=["/no/such/script.py"], replicas=1, failurePolicy={"maxFailures": 0})
    job.until(lambda status: status.get("state") == "Failed", "the end", 60)
    assert "/no/such/script.py" in job.condition("Failed")["message"]
