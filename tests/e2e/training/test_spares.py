"""A job of a fixed size with a spare: a lost worker costs a change of the group, and no wait for a pod."""

import pytest

from tests.e2e.job_under_test import StartJob
from tests.waiting import until

pytestmark = pytest.mark.e2e


def test_spare_takes_the_place_of_a_lost_worker_in_the_next_round(start_job: StartJob) -> None:
    args = ["/examples/all-reduce/train_elastic.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]
    job = start_job(file="elastic.yaml", args=args, replicas=2, minReplicas=2, spares=1, prepare={})
    job.until(lambda status: status.get("worldSize") == 2 and status.get("readySpares") == 1, "two workers and a spare")
    status = job.status
    assert (status["replicas"], status["readyReplicas"]) == (2, 2)
    before, members = status["round"], job.members()
    [spare] = {pod["metadata"]["name"] for pod in job.pods()} - set(members)
    job.until_stepping(members[0], 2)
    job.kubectl("delete", "pod", members[1], "--grace-period=0", "--force")
    job.until(lambda status: status["round"] > before, "a new round")
    status = job.status
    assert status["round"] == before + 1
    assert sorted(job.members()) == sorted([members[0], spare])
    until(lambda: sum("world=" in line for line in job.logs(members[0])[-3:]) == 3, "further steps")
    job.until(lambda status: status.get("readySpares") == 1, "another spare")
    assert job.status["round"] == before + 1, "which disturbs no member"
