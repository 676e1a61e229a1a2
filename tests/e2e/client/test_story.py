"""One job lives through all of it, and `kubectl describe` tells it afterwards."""

from functools import partial
from typing import Any

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.e2e.kind_nodes import kill_container
from tests.waiting import until

pytestmark = pytest.mark.e2e

SCRIPT = """
import os, pathlib, time
import torch.distributed as dist
from elastic_pytorch import report
from torch.distributed.elastic.multiprocessing.errors import record

STEPS = 130

@record
def main():
    dist.init_process_group("gloo")
    folder = pathlib.Path("/checkpoints")
    checkpoint = folder / (os.environ["TORCHELASTIC_RUN_ID"] + ".step")
    failed = folder / (os.environ["TORCHELASTIC_RUN_ID"] + ".failed")
    may_fail = folder / (os.environ["TORCHELASTIC_RUN_ID"] + ".may-fail")
    step = int(checkpoint.read_text()) if checkpoint.exists() else 0
    while step < STEPS:
        dist.barrier()
        step += 1
        if step == 105 and dist.get_rank() == 1 and not failed.exists():
            while not may_fail.exists():
                time.sleep(0.1)
            failed.write_text("once")
            raise ValueError("the data of step 105 is malformed")
        if dist.get_rank() == 0 and step % 10 == 0:
            new = checkpoint.with_suffix(".new")
            new.write_text(str(step))  # a process may be killed here
            new.replace(checkpoint)
        report(step=step, total=STEPS, loss=4 / step ** 0.5, checkpoint_step=step // 10 * 10)
        time.sleep(0.1)
    dist.destroy_process_group()

main()
"""

# In this order; others may come between them.
STORY = [
    "FirstRound",
    "WorkerJoined",
    "TrainingResumed",
    "WorkerLost",
    "TrainingResumed",
    "WorkerJoined",
    "WorkerFailed",
    "TrainingResumed",
    "JobCompleted",
]


def described_to_the_end(job: JobUnderTest) -> str:
    """What `kubectl describe` says with the last event, which is sent beside the status."""

    def described() -> str:
        return run_kubectl("-n", job.namespace, "describe", "epj", job.name).stdout

    until(lambda: "JobCompleted" in described(), lambda: f"the last event in\n{described()}")
    return described()


def trains_on(replicas: int, resumed: int, status: dict[str, Any]) -> bool:
    return bool(status["worldSize"] == replicas and status.get("interruptions", 0) >= resumed)


def test_describe_tells_what_a_job_has_lived_through(start_job: StartJob) -> None:
    job = start_job(script=SCRIPT, replicas=3, maxReplicas=4)
    job.until_world(3)
    for resumed, replicas in enumerate((4, 3), start=1):
        job.kubectl("scale", f"epj/{job.name}", f"--replicas={replicas}")
        # A change before the training resumes would be told as a part of this one.
        whole = partial(trains_on, replicas, resumed)
        job.until(whole, f"the training to resume with {replicas} workers", 60)
    lost = job.members()[-1]
    kill_container(next(pod for pod in job.pods() if pod["metadata"]["name"] == lost))
    job.until_replaced(lost, 3)
    # Its replacement has joined: only then may the data be malformed.
    job.kubectl(
        "exec",
        job.members()[0],
        "--",
        "sh",
        "-c",
        'touch "/checkpoints/$ELASTIC_PYTORCH_JOB_UID.may-fail"',
    )
    status = job.until(lambda status: status.get("state") in ("Complete", "Failed"), "the end", 120)
    description = described_to_the_end(job)
    print(description)
    assert status["state"] == "Complete"
    assert "malformed" in status["rootCause"]["message"]
    assert status["progress"]["step"] == 130
    told = [
        line.split()[1]
        for line in description.partition("Events:")[2].splitlines()[3:]
        if line.strip()
    ]
    rest = iter(told)
    for reason in STORY:
        assert reason in rest, f"{reason} is not told in its place: {told}"
