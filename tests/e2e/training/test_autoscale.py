"""A script whose steps stop scaling at three workers, on four: autoscale gives one back, and says why."""

import json
from typing import Any

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob

# What a worker adds is measured for a minute and a half at each of two sizes.
pytestmark = pytest.mark.long

SCRIPT = """
import os, time
import torch.distributed as dist
from elastic_pytorch import report

dist.init_process_group("gloo")
world, step = dist.get_world_size(), 0
while True:
    time.sleep(0.6 / min(world, 3))
    dist.barrier()
    step += 1
    report(step=step, samples_per_step=60)
    if dist.get_rank() == 0:
        print(f"STEP {step} world={world} ", flush=True)
"""


def notes(job: JobUnderTest, reason: str) -> list[str]:
    events = json.loads(job.kubectl("get", "events", "--field-selector", f"reason={reason}", "-o", "json"))
    return [str(event["message"]) for event in events["items"]]


def test_worker_that_does_not_help_is_given_back(start_job: StartJob) -> None:
    policy = {"autoscale": {"minEfficiencyPercent": 70}}
    job = start_job(script=SCRIPT, replicas=4, minReplicas=1, maxReplicas=4, resizePolicy=policy)
    job.until_world(4, 180)

    def settled(status: dict[str, Any]) -> bool:
        scaling = status.get("scaling") or {}
        return scaling.get("keptReplicas") == 3 and "autoscale tries" not in scaling.get("message", "")

    status = job.until(settled, "three workers that are kept", 1500)
    job.until_world(3, 180)
    assert "autoscale keeps 3 of 4 workers" in status["scaling"]["message"]
    assert any(note.startswith("Gives back 1 of 4 workers: the 4th worker ") for note in notes(job, "Autoscaled"))
    assert job.get()["spec"]["replicas"] == 4
