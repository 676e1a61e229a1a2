"""Two jobs that each hold a part of the nodes that both need, with the cluster's own scheduler."""

from datetime import datetime

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob
from tests.e2e.kind_nodes import cordoned
from tests.e2e.scheduling.slots import SLOT, give_slots
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

TRAINING_SECONDS = 20

# The first group of a job trains until it is disturbed; the next one completes it.
SCRIPT = f"""\
import os
import pathlib
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
begun = pathlib.Path("/checkpoints") / (os.environ["TORCHELASTIC_RUN_ID"] + ".begun")
again = torch.tensor(int(dist.get_rank() == 0 and begun.exists()))
dist.broadcast(again, 0)
if dist.get_rank() == 0:
    begun.touch()
for _ in range({TRAINING_SECONDS} * 10 if again.item() else 1_000_000):
    dist.barrier()
    time.sleep(0.1)
"""


def start(start_job: StartJob, name: str) -> JobUnderTest:
    job = start_job(
        name=name,
        script=SCRIPT,
        replicas=3,
        minReplicas=3,
        maxReplicas=3,
        resources={"limits": {SLOT: "1"}, "requests": {"cpu": "50m", "memory": "256Mi"}},
        scheduling={"scheduleTimeoutSeconds": 20},
    )
    job.until_world(3, 180)
    return job


@pytest.mark.long
def test_two_jobs_that_each_hold_half_complete_one_after_the_other(
    start_job: StartJob, slot_nodes: list[str]
) -> None:
    give_slots(slot_nodes, 1)
    one = start(start_job, "one")
    give_slots(slot_nodes, 2)
    two = start(start_job, "two")
    lost = slot_nodes[-1]
    with cordoned(lost):
        # One worker of each job is there: now each holds two of the four slots that are left, and
        # needs three.
        there = [
            pod["metadata"]["name"]
            for job in (one, two)
            for pod in job.pods()
            if pod["spec"].get("nodeName") == lost
        ]
        assert len(there) == 2
        one.kubectl("delete", "pod", *there, "--wait=false")
        for job in (one, two):
            job.until(lambda status: status["worldSize"] == 0, "a group below its minimum", 60)
        ended = {}
        for job in (one, two):
            status = job.until(
                lambda status: status["state"] in ("Complete", "Failed"), "the end", 600
            )
            ended[job.name] = datetime.fromisoformat(status["completionTime"])
            assert (status["state"], status["totalFailures"]) == ("Complete", 0)
    until(
        lambda: one.events("ScheduleTimeout") or two.events("ScheduleTimeout"),
        "an event of either job",
    )
    apart = abs((ended["one"] - ended["two"]).total_seconds())
    assert apart >= TRAINING_SECONDS - 1, "there is room for one of them at a time"
