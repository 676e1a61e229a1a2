"""Jobs whose group stock torchrun forms: nothing in their workers is this project's."""

import re
from typing import Any

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob
from tests.e2e.kind_nodes import kill_container
from tests.waiting import until

pytestmark = pytest.mark.e2e

SCRIPT = [
    "/examples/all-reduce/train.py",
    "--checkpoint-dir",
    "/checkpoints",
    "--checkpoint-every",
    "1",
]
ENDLESS = [*SCRIPT, "--steps", "100000"]
# Without a checkpoint before it: a script that is started again would be past that step.
# Torch waits for a third worker before each group, if there may be one.
NO_MORE = {"replicas": 2, "maxReplicas": 2}
RENDEZVOUS = "elasticpytorch.dev/rendezvous"


def pods(job: JobUnderTest, role: str = "worker") -> list[dict[str, Any]]:
    found = [
        pod for pod in job.pods() if pod["metadata"]["labels"]["elasticpytorch.dev/role"] == role
    ]
    return [
        pod
        for pod in found
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


def names(found: list[dict[str, Any]]) -> list[str]:
    return [pod["metadata"]["name"] for pod in found]


def rendezvous(job: JobUnderTest) -> set[str]:
    return {pod["metadata"]["labels"][RENDEZVOUS] for pod in pods(job)}


def steps(job: JobUnderTest, world: int) -> list[int]:
    """The steps that the logs of the running workers tell of, in groups of a size."""
    found = [
        re.match(rf"STEP (\d+) world={world} ", line)
        for name in names(pods(job))
        for line in job.logs(name)
    ]
    return sorted(int(match[1]) for match in found if match)


def until_steps(job: JobUnderTest, world: int, beyond: int = 0) -> int:
    """Waits until a group of a size has gone some steps beyond one; returns the last."""
    later = until(
        lambda: [step for step in steps(job, world) if step > beyond + 3],
        lambda: f"steps beyond {beyond} with a world of {world}; the status is {job.status}",
    )
    return later[-1]


def test_stock_job_completes_although_a_worker_is_killed(start_job: StartJob) -> None:
    job = start_job("stock-c10d", args=[*SCRIPT, "--steps", "150"], **NO_MORE)
    job.until_world(2)
    [store] = names(pods(job, "store"))
    for pod in pods(job):
        [container] = pod["spec"]["containers"]
        assert container["command"] == ["python3", "-m", "torch.distributed.run"]
        assert not any("elastic" in volume["name"] for volume in pod["spec"]["volumes"])
    done = until_steps(job, 2)
    assert job.status["round"] == 1
    [victim] = [
        pod
        for pod in pods(job)
        if not any(line.startswith("STEP") for line in job.logs(pod["metadata"]["name"]))
    ]
    kill_container(victim)
    job.until(
        lambda _: victim["metadata"]["name"] not in names(pods(job)) and len(pods(job)) == 2,
        "the replacement",
    )
    until_steps(job, 2, beyond=done)
    assert rendezvous(job) == {"1"}, "the same rendezvous"
    assert names(pods(job, "store")) == [store]

    status = job.until(lambda status: status.get("state") in ("Complete", "Failed"), "the end")
    assert (status["state"], status["failures"]) == ("Complete", 0), (
        "a lost pod is not the job's failure"
    )
    lines = [line for pod in job.pods() for line in job.logs(pod["metadata"]["name"])]
    assert {int(line.split()[1]) for line in lines if line.startswith("STEP")} == set(range(1, 151))
    assert not any("elastic_pytorch" in line for line in lines)
    until(lambda: store not in names(job.pods()), "the store to go with the end of the job")


@pytest.mark.long
def test_stock_group_survives_the_loss_of_its_store(start_job: StartJob) -> None:
    job = start_job("stock-c10d", args=ENDLESS)
    done = until_steps(job, 2)
    kill_container(pods(job, "store")[0])
    job.until(lambda _: bool(rendezvous(job) - {"1"}), "a new rendezvous")
    until_steps(job, 2, beyond=done)
    assert job.status["failures"] == 0
