"""Two flavors in one job: quota on demand for the minimum, on spot nodes for workers beyond it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.job_under_test import JobUnderTest, run_kubectl
from tests.e2e.kueue.conftest import QUEUE_SECONDS, MakeQueue, StartQueued
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("operator_with_queues")]

POOL, SPOT = "e2e.elasticpytorch.dev/pool", "e2e.elasticpytorch.dev/spot"
NODES = {
    "elastic-pytorch-worker": "on-demand",
    "elastic-pytorch-worker2": "on-demand",
    "elastic-pytorch-worker3": "spot",
}
ON_SPOT = {
    "nodeSelector": {POOL: "spot"},
    "tolerations": [{"key": SPOT, "operator": "Exists", "effect": "NoSchedule"}],
}


@pytest.fixture
def spot(namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the spec of a flavor of spot nodes.

    The label says which kind a node is of, and the taint keeps others away.
    """
    spots = [node for node, kind in NODES.items() if kind == "spot"]
    for node, kind in NODES.items():
        run_kubectl("label", "node", node, f"{POOL}={kind}")
    run_kubectl("taint", "node", *spots, f"{SPOT}=true:NoSchedule")
    taint = {"key": SPOT, "value": "true", "effect": "NoSchedule"}
    yield f"{namespace}-spot", {"nodeLabels": {POOL: "spot"}, "nodeTaints": [taint]}
    run_kubectl("taint", "node", *spots, f"{SPOT}:NoSchedule-")
    run_kubectl("label", "node", *NODES, f"{POOL}-")


def kinds(job: JobUnderTest) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pod in job.pods():
        workload = pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"]
        found.setdefault(workload, set()).add(NODES[pod["spec"]["nodeName"]])
    return found


def test_workers_beyond_the_minimum_have_the_flavor_of_the_spot_nodes_and_leave_with_its_quota(
    make_queue: MakeQueue,
    start_queued: StartQueued,
    spot: tuple[str, dict[str, Any]],
    high_priority: str,
) -> None:
    name, flavor = spot
    queue = make_queue(3, labels={POOL: "on-demand"}, others={name: (2, flavor)})
    job = start_queued("job", 4, 2, scheduling={"extraWorkers": ON_SPOT})
    job.until_world(4, QUEUE_SECONDS)
    assert kinds(job) == {
        "job-base": {"on-demand"},
        "job-extra-1": {"spot"},
        "job-extra-2": {"spot"},
    }
    queue.until_used(2)
    queue.until_used(2, name)
    leader = job.members()[0]
    job.until_stepping(leader, 4, QUEUE_SECONDS)

    high = start_queued("high", 2, 2, priority=high_priority, pod=ON_SPOT)
    high.until_world(2, QUEUE_SECONDS)
    assert kinds(high) == {"high-base": {"spot"}}
    job.until_world(2, QUEUE_SECONDS)
    assert kinds(job) == {"job-base": {"on-demand"}}
    assert leader in job.members()
    high.kubectl("delete", "epj", "high")
    job.until_world(4, QUEUE_SECONDS)

    # The queue has one more worker on demand: the other extra waits.
    job.kubectl(
        "patch",
        "epj",
        "job",
        "--type=merge",
        "-p",
        json.dumps({"spec": {"scheduling": {"extraWorkers": None}}}),
    )
    queue.until_used(0, name)
    queue.until_used(3)
    job.until_world(3, QUEUE_SECONDS)
    # Kueue admits the extra that is made first, which is that of the pod that ends first.
    one_of_each = [
        {"job-base": {"on-demand"}, extra: {"on-demand"}}
        for extra in ("job-extra-1", "job-extra-2")
    ]
    until(lambda: kinds(job) in one_of_each, lambda: f"the change: {kinds(job)}")
    assert job.status["failures"] == 0
