"""Two kinds of nodes in one job: the minimum's workers run on the first, others on the second."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.waiting import until

pytestmark = pytest.mark.e2e

ARGS = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]
NODES = {
    "elastic-pytorch-worker": "on-demand",
    "elastic-pytorch-worker2": "on-demand",
    "elastic-pytorch-worker3": "spot",
}


@pytest.fixture
def label(namespace: str) -> Iterator[str]:
    """The label that says which kind a node is of, in this test alone."""
    key = f"e2e.elasticpytorch.dev/{namespace}"
    for node, kind in NODES.items():
        run_kubectl("label", "node", node, f"{key}={kind}")
    yield key
    run_kubectl("label", "node", *NODES, f"{key}-")


def kinds(job: JobUnderTest) -> dict[str, str]:
    return {
        pod["metadata"]["labels"]["elasticpytorch.dev/worker-index"]: NODES[pod["spec"]["nodeName"]]
        for pod in job.pods()
    }


def test_workers_beyond_the_minimum_run_on_the_other_kind(start_job: StartJob, label: str) -> None:
    def on_demand(pod: dict[str, Any]) -> None:
        pod["nodeSelector"] = {label: "on-demand"}

    extra = {"extraWorkers": {"nodeSelector": {label: "spot"}}}
    job = start_job(
        args=ARGS, change_pod=on_demand, replicas=3, minReplicas=2, maxReplicas=3, scheduling=extra
    )
    job.until_world(3)
    assert kinds(job) == {"0": "on-demand", "1": "on-demand", "2": "spot"}
    job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
    job.until_world(2)
    until(lambda: len(job.pods()) == 2, lambda: f"the third worker to leave: {kinds(job)}")
    assert set(kinds(job).values()) == {"on-demand"}
