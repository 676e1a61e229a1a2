"""A job with the training library: what changes of its group cost, and what starts again."""

import re
from collections.abc import Iterator
from itertools import groupby

import pytest

from tests.e2e.job_under_test import ENDLESS_ELASTIC, JobUnderTest, StartJob
from tests.waiting import until

pytestmark = pytest.mark.e2e


def steps(job: JobUnderTest, pod: str) -> list[tuple[int, int, float]]:
    """Number, world size and time of the steps that a pod has told of as rank 0."""
    found = [re.match(r"STEP (\d+) world=(\d+) time=([\d.]+)", line) for line in job.logs(pod)]
    return [(int(m[1]), int(m[2]), float(m[3])) for m in found if m]


def processes(job: JobUnderTest, pod: str) -> Iterator[str]:
    for line in job.logs(pod):
        if found := re.search(r"workers started in .* pids (\d+)", line):
            yield found[1]


def test_changes_of_the_group_lose_nothing_and_start_nobody_anew(start_job: StartJob) -> None:
    job = start_job(file="elastic.yaml", args=ENDLESS_ELASTIC)
    job.until_world(3)
    leader = job.members()[0]
    job.until_stepping(leader, 3)

    job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
    job.until_stepping(leader, 2)
    job.kubectl("scale", f"epj/{job.name}", "--replicas=3")
    job.until(lambda status: status.get("worldSize") == 3, "a newcomer")
    until_steps_of_world(job, leader, [3, 2, 3])
    numbers = [number for number, _, _ in steps(job, leader)]
    assert numbers == list(range(1, len(numbers) + 1)), "each step was computed once"

    victim = job.members()[1]
    pid = list(processes(job, victim))[-1]
    before = job.status["round"]
    job.kubectl("exec", victim, "--", "python3", "-c", f"import os; os.kill({pid}, 9)")
    job.until(lambda status: status["round"] > before, "a new round", 30)
    last = len(numbers) + 20
    until(
        lambda: steps(job, leader)[-1][0] >= last,
        lambda: f"step {last}; the last are {steps(job, leader)[-3:]}",
    )
    numbers = [number for number, _, _ in steps(job, leader)]
    assert len(numbers) - len(set(numbers)) <= 1, "a killed worker costs a step at most"
    assert sorted(set(numbers)) == list(range(1, max(numbers) + 1)), "and none is left out"
    assert len(list(processes(job, leader))) == 1, (
        "the survivors' processes have lived through it all"
    )
    assert job.interruptions()[-1]["stepsLost"] <= 1


def until_steps_of_world(job: JobUnderTest, pod: str, worlds: list[int]) -> None:
    """Waits until rank 0 has told of steps in groups of these sizes, one after the other."""

    def runs() -> list[int]:
        return [world for world, _ in groupby(world for _, world, _ in steps(job, pod))]

    until(lambda: runs() == worlds, lambda: f"groups of {worlds}, not {runs()}")
