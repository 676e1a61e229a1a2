"""A job of a hundred workers: its pods are made side by side, and gone without a trace."""

import json
from datetime import datetime

import pytest

from tests.e2e.job_under_test import StartJob, operator_log
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.long]

WORKERS = 100
# That many would be too much for one machine: their pods stay Pending.
NOWHERE = {"example.com/no-such-node": "true"}


def test_a_hundred_pods_are_made_in_seconds(start_job: StartJob) -> None:
    containers = [{"name": "pytorch", "image": "elastic-pytorch-worker:dev", "args": ["train.py"]}]
    template = {"spec": {"nodeSelector": NOWHERE, "containers": containers}}
    job = start_job(template=template, replicas=WORKERS, maxReplicas=WORKERS)
    status = job.until(lambda status: status.get("replicas") == WORKERS, "a hundred pods", 60)
    assert status["state"] == "Pending"
    job.until(
        lambda _: "Unschedulable" in job.condition("Running").get("message", ""), "the reason"
    )
    log = operator_log(tail=2000)
    made = [
        datetime.fromisoformat(line["time"])
        for line in map(json.loads, filter(lambda text: text.startswith("{"), log.splitlines()))
        if line["message"] == "created pod" and line["job"] == f"{job.namespace}/{job.name}"
    ]
    assert len(made) == WORKERS, "none twice"
    seconds = (max(made) - min(made)).total_seconds()
    print(f"{WORKERS} pods made in {seconds:.2f} s")
    assert seconds < 15
    assert sorted(
        pod["metadata"]["labels"]["elasticpytorch.dev/worker-index"] for pod in job.pods()
    ) == sorted(str(index) for index in range(WORKERS))
    job.kubectl("delete", "epj", job.name)
    until(lambda: not job.pods(), lambda: f"{len(job.pods())} pods to go")
