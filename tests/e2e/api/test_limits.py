"""Limits, suspension and the ends of jobs, on a real cluster."""

import json
import time

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.waiting import until

pytestmark = pytest.mark.e2e

ENDLESS = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]
SHORT = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "5"]

HANGS_ONCE = """
import os, pathlib, time
import torch.distributed as dist
from elastic_pytorch import report

def stuck_here():
    time.sleep(1000)

dist.init_process_group("gloo")
marker = pathlib.Path("/checkpoints") / os.environ["TORCHELASTIC_RUN_ID"]
for step in range(1, 21):
    dist.barrier()
    if step == 5 and dist.get_rank() == 1 and not marker.exists():
        marker.write_text("hung")
        stuck_here()
    report(step=step)
    time.sleep(0.1)
dist.destroy_process_group()
"""

LOADS_FOR_EVER_ONCE = """
import os, pathlib, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from elastic_pytorch import report

class Samples(Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        if index == 5 and dist.get_rank() == 2 and not marker.exists():
            marker.write_text("hung")
            time.sleep(1000)
        return torch.ones(1)

dist.init_process_group("gloo")
marker = pathlib.Path("/checkpoints") / os.environ["TORCHELASTIC_RUN_ID"]
for step, sample in enumerate(DataLoader(Samples()), 1):
    dist.all_reduce(sample)
    report(step=step)
    time.sleep(0.1)
    if step > 20 and dist.get_world_size() == 3:
        break
dist.destroy_process_group()
"""

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

CRASHES = """
import ctypes, time
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    ctypes.string_at(0)
time.sleep(100)
"""


def patch(job: JobUnderTest, **spec: object) -> None:
    job.kubectl("patch", "epj", job.name, "--type=merge", "--patch", json.dumps({"spec": spec}))


def events(job: JobUnderTest) -> list[str]:
    found = json.loads(job.kubectl("get", "events", "--field-selector", f"involvedObject.name={job.name}", "-o", "json"))
    return [f"{event['reason']}: {event['message']}" for event in found["items"]]


def until_event(job: JobUnderTest, start: str) -> str:
    """Waits for the event whose reason and message start so: events are sent beside the status, not before it."""
    found = until(
        lambda: [event for event in events(job) if event.startswith(start)], lambda: f"an event {start!r}: {events(job)}"
    )
    return found[0]


def until_gone(job: JobUnderTest, what: str) -> None:
    until(lambda: not job.kubectl("get", what, "-o", "name"), lambda: f"these to go:\n{job.kubectl('get', what)}")


def test_suspend_and_resume(start_job: StartJob) -> None:
    job = start_job(args=ENDLESS)
    job.until_world(3)
    run_kubectl("-n", job.namespace, "wait", "--for=condition=Suspended=False", f"epj/{job.name}", "--timeout=10s")
    until(lambda: any(line.startswith("STEP 12 ") for line in job.logs(job.members()[0])), "step 12")
    patch(job, suspend=True)
    run_kubectl("-n", job.namespace, "wait", "--for=condition=Suspended", f"epj/{job.name}", "--timeout=60s")
    assert job.pods() == []
    status = job.status
    assert (status["state"], status["replicas"], status["worldSize"], status["failures"]) == ("Suspended", 0, 0, 0)
    patch(job, template={"metadata": {"labels": {"team": "language"}}})
    patch(job, suspend=False)
    run_kubectl("-n", job.namespace, "wait", "--for=condition=Suspended=False", f"epj/{job.name}", "--timeout=60s")
    job.until_world(3)
    assert {pod["metadata"]["labels"]["team"] for pod in job.pods()} == {"language"}
    leader = job.members()[0]
    job.until_stepping(leader, 3)
    first = next(line for line in job.logs(leader) if line.startswith("STEP"))
    assert int(first.split()[1]) > 1, "it goes on from its checkpoint"
    until_event(job, "JobSuspended")
    until_event(job, "JobResumed")


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
    until_event(job, "ScaleRefused: 3 workers are not one of")
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
    time.sleep(4)
    assert job.pods() == []
    assert job.status == {}


def test_image_name_that_cannot_be_one_fails_the_job(start_job: StartJob) -> None:
    job = start_job(template={"spec": {"containers": [{"name": "pytorch", "image": "No Such Image"}]}})
    job.until(lambda status: status.get("state") == "Failed", "the failure", 30)
    failed = job.condition("Failed")
    assert failed["reason"] in ("CannotStart", "InvalidTemplate")
    assert "No Such Image" in failed["message"]


def test_hung_step_is_found_and_the_group_restarted(start_job: StartJob) -> None:
    job = start_job(script=HANGS_ONCE, replicas=2, minReplicas=2, progressDeadlineSeconds=6)
    status = job.until(lambda status: status.get("state") in ("Complete", "Failed"), "the end", 90)
    assert status["state"] == "Complete"
    assert status["round"] > 1
    told = until_event(job, "ProgressStalled")
    assert "rank 1 is outside of the group's communication (" in told
    assert " stuck_here), the other waits in barrier" in told


def test_rank_that_hangs_in_its_data_loader_is_named_and_its_pod_stays(start_job: StartJob) -> None:
    job = start_job(script=LOADS_FOR_EVER_ONCE, replicas=3, minReplicas=2, progressDeadlineSeconds=10)
    job.until_world(3)
    culprit = job.members()[2]
    pods = {pod["metadata"]["name"] for pod in job.pods()}
    told = until_event(job, "ProgressStalled")
    assert "rank 2 is in its data loader (" in told
    assert " __getitem__), the others wait in all_reduce" in told
    status = job.until(lambda status: status.get("state") in ("Complete", "Failed"), "the end", 120)
    assert status["state"] == "Complete"
    assert (status["rootCause"]["worker"], status["rootCause"]["rank"]) == (culprit, 2)
    assert {pod["metadata"]["name"] for pod in job.pods()} <= pods


@pytest.mark.long
def test_rank_that_returns_early_is_named(start_job: StartJob) -> None:
    job = start_job(script=RETURNS_EARLY, replicas=2, minReplicas=2, failurePolicy={"maxFailures": 1})
    job.until(lambda status: status.get("state") in ("Complete", "Failed"), "the end", 60)
    failed = job.condition("Failed")
    assert "had returned while others still trained" in failed.get("message", "")


def test_crash_without_a_traceback_is_told(start_job: StartJob) -> None:
    job = start_job(script=CRASHES, replicas=2, minReplicas=2, failurePolicy={"maxFailures": 0})
    status = job.until(lambda status: status.get("state") == "Failed", "the end", 60)
    assert (status["rootCause"]["rank"], status["rootCause"]["signal"]) == (1, "SIGSEGV")


@pytest.mark.long
def test_script_that_is_not_there_is_named(start_job: StartJob) -> None:
    job = start_job(args=["/no/such/script.py"], replicas=1, failurePolicy={"maxFailures": 0})
    job.until(lambda status: status.get("state") == "Failed", "the end", 60)
    assert "/no/such/script.py" in job.condition("Failed")["message"]
