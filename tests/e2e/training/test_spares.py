"""Spares on a real cluster: a lost worker costs one round of full size, and no wait for a pod."""

from typing import Any

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob, leading_operator
from tests.e2e.kind_nodes import cordoned, killed
from tests.waiting import until

pytestmark = pytest.mark.e2e


def spare_of(job: JobUnderTest) -> str:
    """The name of the only spare, once it is ready and the status lists it."""

    def listed(status: dict[str, Any]) -> list[str]:
        return [
            worker["name"] for worker in status.get("workers", []) if worker["state"] == "Spare"
        ]

    status = job.until(
        lambda status: status.get("readySpares") == 1 and len(listed(status)) == 1, "a spare"
    )
    return listed(status)[0]


@pytest.mark.parametrize(
    ("script", "fields"),
    [pytest.param("train.py", {}, marks=pytest.mark.long), ("train_elastic.py", {"prepare": {}})],
    ids=["plain", "prepared"],
)
def test_spare_takes_over_in_the_round_that_follows_a_loss(
    start_job: StartJob, script: str, fields: dict[str, Any]
) -> None:
    args = [
        f"/examples/all-reduce/{script}",
        "--checkpoint-dir",
        "/checkpoints",
        "--steps",
        "100000",
    ]
    job = start_job(args=args, replicas=2, minReplicas=2, maxReplicas=2, spares=1, **fields)
    job.until_world(2)
    leader, lost = job.members()
    job.until_stepping(leader, 2)
    spare = spare_of(job)
    before = job.status
    assert (before["replicas"], before["readyReplicas"], before["state"]) == (2, 2, "Running"), (
        "a spare is no worker"
    )
    assert job.condition("Degraded")["status"] == "False"
    job.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
    after = job.until(
        lambda status: status["round"] > before["round"], "the round after the loss", 30
    )
    assert after["round"] == before["round"] + 1
    assert after["worldSize"] == 2, "the very next round has the full size"
    assert sorted(job.members()) == sorted([leader, spare])
    assert spare_of(job) not in (leader, lost, spare), "another one is started"
    status = job.status
    assert (status["round"], status["worldSize"], status["failures"]) == (
        before["round"] + 1,
        2,
        0,
    ), "which disturbs no member"
    first = job.members()[0]
    steps = len(job.logs(first))
    until(lambda: len(job.logs(first)) > steps + 2, f"further steps of {first}")


@pytest.mark.serial
@pytest.mark.long
def test_node_that_takes_a_member_and_the_spare_along_starts_no_process_again(
    start_job: StartJob,
) -> None:
    """The others leave a group that waits for the dead spare, and train on as they are."""
    args = [
        "/examples/all-reduce/train_elastic.py",
        "--checkpoint-dir",
        "/checkpoints",
        "--steps",
        "100000",
    ]
    away = leading_operator()["spec"]["nodeName"]
    with cordoned(away):
        job = start_job(
            file="elastic.yaml",
            args=args,
            replicas=3,
            minReplicas=1,
            maxReplicas=3,
            spares=1,
            prepare={},
        )
        job.until_world(3)
        spare, before = spare_of(job), job.status["round"]
        nodes = {worker["name"]: worker["node"] for worker in job.status["workers"]}
        left = [worker for worker in job.members() if nodes[worker] != nodes[spare]]
        assert 0 < len(left) < 3, f"a member beside the spare, and one elsewhere: {nodes}"
        with killed(nodes[spare]):
            job.until(
                lambda status: status["round"] > before and status["worldSize"] == len(left),
                "a round of the others",
                60,
            )
            steps = len(job.logs(left[0]))
            until(lambda: len(job.logs(left[0])) > steps + 3, f"further steps of {left[0]}")
            for worker in left:
                assert sum("workers started in" in line for line in job.logs(worker)) == 1
    assert job.status["failures"] == 0
