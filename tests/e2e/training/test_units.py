"""Units of several pods on a real cluster: one that lacks a pod leaves as a whole, and the others train on."""

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob

pytestmark = pytest.mark.e2e

ARGS = ["/examples/units/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]


def indices(job: JobUnderTest) -> list[int]:
    """The indices of the members, by rank."""
    ranked = [worker for worker in job.status.get("workers", []) if "rank" in worker]
    return [worker["index"] for worker in sorted(ranked, key=lambda worker: worker["rank"])]


def test_unit_leaves_and_returns_as_a_whole(start_job: StartJob) -> None:
    job = start_job(args=ARGS, replicas=6, minReplicas=2, maxReplicas=6, unitReplicas=2)
    job.until_world(6)
    assert indices(job) == [0, 1, 2, 3, 4, 5]
    labels = [pod["metadata"]["labels"] for pod in job.pods()]
    units = sorted((label["elasticpytorch.dev/worker-index"], label["elasticpytorch.dev/unit"]) for label in labels)
    assert units == [("0", "0"), ("1", "0"), ("2", "1"), ("3", "1"), ("4", "2"), ("5", "2")]
    before = job.status["round"]
    job.kubectl("delete", "pod", job.members()[3], "--grace-period=0", "--force")
    after = job.until(lambda status: status["round"] > before, "the round after the loss", 30)
    assert (after["round"], after["worldSize"]) == (before + 1, 4)
    assert sorted(worker["index"] for worker in after["workers"] if "rank" in worker) == [0, 1, 4, 5]
    job.until_world(6)
    assert sorted(indices(job)) == [0, 1, 2, 3, 4, 5]
    assert job.status["failures"] == 0


def test_scaling_to_a_torn_unit_is_rounded_down(start_job: StartJob) -> None:
    job = start_job(args=ARGS, replicas=4, minReplicas=2, maxReplicas=4, unitReplicas=2)
    job.until_world(4)
    job.kubectl("scale", f"epj/{job.name}", "--replicas=3")
    job.until_world(2)
    events = job.kubectl("get", "events", "--field-selector=reason=ScaleRefused", "-o", "jsonpath={.items[*].message}")
    assert "3 workers are not a multiple of unitReplicas (2): 2 are wanted" in events
