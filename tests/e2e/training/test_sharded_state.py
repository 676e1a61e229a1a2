"""A job whose model no worker has all of: its pods keep the shards and copies, without a volume."""

import re

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob
from tests.paths import ROOT
from tests.waiting import until

pytestmark = pytest.mark.e2e

SCRIPT = ROOT / "tests" / "worker_image" / "scripts" / "sharded_momentum.py"
STEP = re.compile(r"STEP (\d+) world=(\d+) .* right=(\w+)")


def steps(job: JobUnderTest, *pods: str) -> list[tuple[int, int]]:
    """Number and world size of the steps that ranks 0 have told of; each had the right state."""
    found = [match for pod in pods for line in job.logs(pod) if (match := STEP.match(line))]
    assert all(match[3] == "True" for match in found), [
        match[0] for match in found if match[3] != "True"
    ]
    return [(int(match[1]), int(match[2])) for match in found]


def until_steps(job: JobUnderTest, pod: str, world: int, count: int = 20) -> None:
    """Waits until rank 0 has told of some steps, the last of them in a group of a size."""
    until(
        lambda: [size for _, size in steps(job, pod)[-count:]] == [world] * count,
        lambda: f"{count} steps of {world} workers; the last is {steps(job, pod)[-1:]}",
    )


def test_shards_outlive_pods_without_a_volume(start_job: StartJob) -> None:
    job = start_job(script=SCRIPT.read_text(), minReplicas=1)
    job.until_world(3)
    leader = job.members()[0]
    until_steps(job, leader, 3)

    job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
    until_steps(job, leader, 2)
    job.kubectl("scale", f"epj/{job.name}", "--replicas=3")
    until_steps(job, leader, 3)
    numbers = [number for number, _ in steps(job, leader)]
    assert numbers == list(range(1, len(numbers) + 1)), "changes on purpose cost no step"

    victim = job.members()[1]
    job.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    job.until_replaced(victim, 3)
    until_steps(job, leader, 3)
    again = [number for number, _ in steps(job, leader)]
    assert sorted(set(again)) == list(range(1, max(again) + 1)), "no step is left out"
    assert again.count(again[0]) == 1, "and the group went on from the copies of lost shards"
