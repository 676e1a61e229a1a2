"""Workers that prepare before they join: the group trains on, whatever becomes of them."""

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob
from tests.waiting import until

pytestmark = pytest.mark.e2e

# The third worker fails in its first set-up, and its second one takes until a file tells it to go
# on.
SCRIPT = """
import os, pathlib, runpy, sys, time
if os.environ["ELASTIC_PYTORCH_WORKER_INDEX"] == "2":
    run_id, folder = os.environ["TORCHELASTIC_RUN_ID"], pathlib.Path("/checkpoints")
    failed, again, go = (folder / f"{word}-{run_id}" for word in ("failed", "again", "go"))
    if not failed.exists():
        failed.touch()
        raise RuntimeError("the data set is not there")
    again.touch()
    while not go.exists():
        time.sleep(0.1)
sys.argv = ["train_elastic.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]
runpy.run_path("/examples/all-reduce/train_elastic.py", run_name="__main__")
"""


def steps(job: JobUnderTest, pod: str) -> list[str]:
    return [line.split(" time=")[0] for line in job.logs(pod) if line.startswith("STEP")]


def test_group_trains_on_while_a_newcomer_fails_and_another_sets_itself_up(
    start_job: StartJob,
) -> None:
    job = start_job(file="elastic.yaml", script=SCRIPT, replicas=2, prepare={})
    job.until_world(2)
    leader = job.members()[0]
    job.until_stepping(leader, 2)
    before = job.status["round"]
    job.kubectl("scale", f"epj/{job.name}", "--replicas=3")

    def preparing(status: dict[str, object]) -> bool:
        workers = status["workers"]
        assert isinstance(workers, list)
        return any(worker["state"] == "Preparing" and worker["index"] == 2 for worker in workers)

    run_id = job.get()["metadata"]["uid"]
    until(
        lambda: job.kubectl("exec", leader, "--", "ls", "/checkpoints").count(f"again-{run_id}"),
        "the set-up after the failed one",
    )
    job.until(preparing, "a newcomer that sets itself up")
    seen = len(steps(job, leader))
    until(lambda: len(steps(job, leader)) >= seen + 10, "ten steps meanwhile")
    status = job.status
    assert (status["round"], status["failures"], status["totalFailures"]) == (before, 0, 0), (
        "the failure is the newcomer's own"
    )
    job.kubectl("exec", leader, "--", "touch", f"/checkpoints/go-{run_id}")
    job.until_world(3)
    until(lambda: any("world=3" in step for step in steps(job, leader)), "a step of three")
    numbers = [int(step.split()[1]) for step in steps(job, leader)]
    assert numbers == list(range(1, len(numbers) + 1)), "each step was computed once"
    assert job.status["round"] == before + 1
