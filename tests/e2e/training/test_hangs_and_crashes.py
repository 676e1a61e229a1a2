"""A job that hangs, crashes and exits as it is told: who is at fault, and what the policy does."""

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob, start_whole

pytestmark = pytest.mark.e2e

# Each rank does what a file in its pod says, once.
SCRIPT = """
import ctypes, os, time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from elastic_pytorch import report

TOLD = Path("/tmp/told")

def told(*words):
    word = TOLD.read_text().strip() if TOLD.exists() else ""
    if word not in words:
        return ""
    TOLD.unlink()
    return word

class Samples(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if told("load for ever"):
            time.sleep(1000)
        return torch.ones(1)

def stuck_here():
    time.sleep(1000)

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
for step, sample in enumerate(DataLoader(Samples()), 1):
    dist.all_reduce(sample)
    word = told("hang", "crash", "exit 42")
    if word == "hang":
        stuck_here()
    if word == "crash":
        ctypes.string_at(0)
    if word == "exit 42":
        raise SystemExit(42)
    dist.barrier()
    report(step=step)
    if rank == 0:
        print(f"STEP {step} world={world} ", flush=True)
    time.sleep(0.1)
"""
RULE = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}


@pytest.fixture
def job(start_shared_job: StartJob) -> JobUnderTest:
    policy = {"maxFailures": 9, "rules": [RULE]}
    return start_whole(
        start_shared_job,
        script=SCRIPT,
        minReplicas=2,
        progressDeadlineSeconds=8,
        failurePolicy=policy,
    )


def tell(job: JobUnderTest, pod: str, word: str) -> None:
    job.kubectl(
        "exec", pod, "--", "sh", "-c", f"echo {word} >/tmp/told.new && mv /tmp/told.new /tmp/told"
    )


def until_trains_again(job: JobUnderTest, round_: int) -> None:
    """Waits for a round after one, and for steps of three workers in it."""
    job.until(
        lambda status: status["round"] > round_ and status["worldSize"] == 3,
        "three workers again",
        120,
    )
    leader = job.members()[0]
    job.until_stepping(leader, 3, after=len(job.logs(leader)))


def test_crash_without_a_traceback_is_told(job: JobUnderTest) -> None:
    before, members = job.status["round"], job.members()
    tell(job, members[1], "crash")
    job.until(lambda status: status["round"] > before, "the next round", 60)
    cause = job.status["rootCause"]
    assert (cause["worker"], cause["rank"], cause["signal"]) == (members[1], 1, "SIGSEGV")
    until_trains_again(job, before)


def test_hung_step_is_found_and_the_group_restarted(job: JobUnderTest) -> None:
    before, members = job.status["round"], job.members()
    tell(job, members[1], "hang")
    told = job.until_event(
        "ProgressStalled", "rank 1 is outside of the group's communication (", " stuck_here)"
    )
    assert " stuck_here), the others wait in barrier" in told
    until_trains_again(job, before)
    cause = job.status["rootCause"]
    assert (cause["worker"], cause["rank"]) == (members[1], 1)


def test_rank_that_hangs_in_its_data_loader_is_named_and_its_pod_stays(job: JobUnderTest) -> None:
    before, culprit = job.status["round"], job.members()[2]
    pods = {pod["metadata"]["name"] for pod in job.pods()}
    tell(job, culprit, "load for ever")
    told = job.until_event("ProgressStalled", "rank 2 is in its data loader (")
    assert " __getitem__), the others wait in all_reduce" in told
    until_trains_again(job, before)
    cause = job.status["rootCause"]
    assert (cause["worker"], cause["rank"]) == (culprit, 2)
    assert {pod["metadata"]["name"] for pod in job.pods()} == pods


def test_exit_code_fails_the_job_at_once_if_a_rule_says_so(job: JobUnderTest) -> None:
    before, worker = job.status["totalFailures"], job.members()[1]
    tell(job, worker, "exit 42")
    job.until(lambda status: status.get("state") == "Failed", "the failure", 60)
    condition = job.condition("Failed")
    assert condition["reason"] == "FailurePolicyRule"
    start = (
        "failurePolicy.rules[0] (onExitCodes In 42) fails the job: "
        f"rank 1 ({worker}) failed, exit code 42"
    )
    assert condition["message"].startswith(start)
    cause = job.status["rootCause"]
    assert (cause["worker"], cause["exitCode"], cause["rank"]) == (worker, 42, 1)
    assert job.status["totalFailures"] == before
