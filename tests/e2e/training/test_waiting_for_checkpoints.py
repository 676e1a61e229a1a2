"""Changes of a group wait for the checkpoint of a script that knows nothing of the operator."""

import copy
from typing import Any

import pytest
from measure.kind_cluster import read_example

from tests.e2e.job_under_test import JobUnderTest, StartJob
from tests.paths import ROOT
from tests.waiting import until

pytestmark = pytest.mark.e2e

# Saves when the test wants it to: when a file says so.
SCRIPT = """
import os, pathlib, time
import torch
import torch.distributed as dist

folder = pathlib.Path(os.environ["FOLDER"])
folder.mkdir(parents=True, exist_ok=True)
checkpoint, beside, wish = folder / "model.pt", folder / "model.pt.tmp", folder / ".save"
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
done = torch.tensor(int(checkpoint.read_text()) if rank == 0 and checkpoint.exists() else 0)
dist.broadcast(done, 0)
step = int(done)
while True:
    step += 1
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        print(f"STEP {step} world={world} ", flush=True)
        if wish.exists():
            wish.unlink()
            beside.write_text(str(step))
            beside.replace(checkpoint)
    time.sleep(1)
"""


def template(folder: str) -> dict[str, Any]:
    """The smallest example's pod, with this script and a grace period that leaves time to wait."""
    manifest = read_example(ROOT / "examples" / "all-reduce" / "job.yaml")
    pod: dict[str, Any] = copy.deepcopy(manifest["spec"]["template"])
    pod["spec"]["terminationGracePeriodSeconds"] = 60
    [container] = pod["spec"]["containers"]
    container["args"] = ["--no-python", "python3", "-c", SCRIPT]
    container["env"].append({"name": "FOLDER", "value": folder})
    return pod


def until_waiting(job: JobUnderTest) -> str:
    """Waits until a change waits; tells what the job says of it."""

    def resizing(status: dict[str, Any]) -> dict[str, Any]:
        return next((c for c in status.get("conditions", []) if c["type"] == "Resizing"), {})

    status = job.until(
        lambda status: resizing(status).get("reason") == "WaitingForCheckpoint",
        "a change that waits",
        60,
    )
    return str(resizing(status)["message"])


def save(job: JobUnderTest, pod: str, folder: str) -> None:
    job.kubectl("exec", pod, "--", "touch", f"{folder}/.save")


def redone(lines: list[str]) -> int:
    steps = [line.split()[1] for line in lines if line.startswith("STEP")]
    return len(steps) - len(set(steps))


def test_changes_wait_for_the_next_checkpoint(start_job: StartJob, namespace: str) -> None:
    folder = f"/checkpoints/{namespace}"
    policy = {"checkpointWaitSeconds": 120, "checkpointPath": folder}
    job = start_job(template=template(folder), replicas=2, resizePolicy=policy)
    job.until_world(2)
    leader, _ = job.members()
    job.until_stepping(leader, 2)

    job.kubectl("scale", f"epj/{job.name}", "--replicas=1")
    message = until_waiting(job)
    assert message.startswith("shrinking from 2 to 1 workers: ")
    assert message.endswith(f"waits up to 120 s for the next checkpoint in {folder}")
    assert job.status["worldSize"] == 2
    save(job, leader, folder)
    job.until_world(1)
    job.until_stepping(leader, 1)

    job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
    assert until_waiting(job).startswith("growing from 1 to 2 workers: ")
    save(job, leader, folder)
    status = job.until_world(2)
    assert redone(job.logs(leader)) <= 3, "at most a step each, and what a slow machine adds"

    job.kubectl("delete", "pod", job.members()[1], "--wait=false")
    deleted = f"is being deleted; waits up to 28 s for the next checkpoint in {folder}"
    # The agent may tell of SIGTERM before the operator sees the deletion.
    until(lambda: deleted in until_waiting(job), lambda: f"{deleted!r}, not {until_waiting(job)!r}")
    save(job, leader, folder)
    job.until(
        lambda now: now["round"] > status["round"] and now["worldSize"] > 0,
        "a round without the pod",
    )
    assert job.status["failures"] == 0

    ended = f"has seen a new checkpoint in {folder}"
    until(lambda: len(job.events("CheckpointWaitEnded")) >= 3, "the events of three waits")
    assert all(note.endswith(ended) for note in job.events("CheckpointWaitEnded")[:3])
