"""A container without memory on a real node: with cgroup v2, all of it goes, state included."""

import pytest

from tests.e2e.job_under_test import ENDLESS_ELASTIC, PATIENCE, JobUnderTest, StartJob
from tests.waiting import until

pytestmark = pytest.mark.e2e

RESOURCES = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
SETTING = "/sys/fs/cgroup/memory.oom.group"


def kills_the_container(job: JobUnderTest, pod: str) -> bool:
    """Whether the kernel, and so the agent's log, says that all of a container's processes go."""
    setting = job.kubectl(
        "exec", pod, "--", "sh", "-c", f"cat {SETTING} 2>/dev/null || echo 0"
    ).strip()
    told = any("memory.oom.group is 1" in line for line in job.logs(pod))
    assert told == (setting == "1")
    return told


def last_step(job: JobUnderTest) -> int:
    return int((job.status.get("progress") or {}).get("step", 0))


@pytest.mark.long
def test_container_that_runs_out_of_memory_costs_its_own_state_only(start_job: StartJob) -> None:
    job = start_job(args=ENDLESS_ELASTIC, resources=RESOURCES, replicas=2)
    job.until_world(2)
    job.until(
        lambda status: (status.get("progress") or {}).get("step", 0) > 0,
        "the first step in the status",
    )
    _, victim = job.members()
    whole = kills_the_container(job, victim)
    step = last_step(job)
    job.kubectl("exec", victim, "--", "python3", "-c", "b'x' * (2 << 30)", check=False)
    if not whole:  # the process that asked for the memory has gone, and no other
        job.until(
            lambda status: (status.get("progress") or {}).get("step", 0) > step,
            "a step after the kill",
        )
        assert (job.status.get("failures", 0), job.members()[1]) == (0, victim)
        return
    status = job.until(lambda status: status.get("totalFailures") == 1, "the failure")
    assert status["rootCause"]["worker"] == victim
    assert status["rootCause"]["exitCode"] == 137
    assert (
        "all its processes and the state in its memory are gone" in status["rootCause"]["message"]
    )
    assert "singleProcessOOMKill: true" in status["rootCause"]["message"]
    job.until_replaced(victim, 2)
    until(
        lambda: last_step(job) > step,
        "steps after those that were done before the kill",
        PATIENCE * 60,
    )
    assert job.status["totalFailures"] == 1
