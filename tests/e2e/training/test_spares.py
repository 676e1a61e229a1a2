"""Spares on a real cluster: a lost worker costs one round of full size, without a wait for a new pod."""

from typing import Any

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob
from tests.waiting import until

pytestmark = pytest.mark.e2e


def spare_of(job: JobUnderTest) -> str:
    """The name of the only spare, once it is ready and the status lists it."""

    def listed(status: dict[str, Any]) -> list[str]:
        return [worker["name"] for worker in status.get("workers", []) if worker["state"] == "Spare"]

    status = job.until(lambda status: status.get("readySpares") == 1 and len(listed(status)) == 1, "a spare")
    return listed(status)[0]


@pytest.mark.parametrize(
    ("script", "fields"),
    [("train.py", {}), ("train_elastic.py", {"prepare": {}})],
    ids=["plain", "prepared"],
)
def test_spare_takes_over_in_the_round_that_follows_a_loss(start_job: StartJob, script: str, fields: dict[str, Any]) -> None:
    args = [f"/examples/all-reduce/{script}", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]
    job = start_job(args=args, replicas=2, minReplicas=2, maxReplicas=2, spares=1, **fields)
    job.until_world(2)
    leader, lost = job.members()
    job.until_stepping(leader, 2)
    spare = spare_of(job)
    before = job.status
    assert (before["replicas"], before["readyReplicas"], before["state"]) == (2, 2, "Running"), "a spare is no worker"
    assert job.condition("Degraded")["status"] == "False"
    job.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
    after = job.until(lambda status: status["round"] > before["round"], "the round after the loss", 30)
    assert after["round"] == before["round"] + 1
    assert after["worldSize"] == 2, "the very next round has the full size"
    assert sorted(job.members()) == sorted([leader, spare])
    assert spare_of(job) not in (leader, lost, spare), "another one is started"
    status = job.status
    assert (status["round"], status["worldSize"], status["failures"]) == (before["round"] + 1, 2, 0), "which disturbs no member"
    first = job.members()[0]
    steps = len(job.logs(first))
    until(lambda: len(job.logs(first)) > steps + 2, f"further steps of {first}")
