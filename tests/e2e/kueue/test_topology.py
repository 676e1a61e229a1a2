"""Kueue's topology-aware scheduling: the workers of a base share a rack, and Kueue chooses the node of each pod."""

from collections.abc import Iterator

import pytest

from tests.e2e.job_under_test import run_kubectl
from tests.e2e.kueue.conftest import QUEUE_SECONDS, MakeQueue, StartQueued
from tests.e2e.kueue.workloads import Workload, apply, kueue_object
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("operator_with_queues")]

POOL, RACK = "e2e.elasticpytorch.dev/pool", "e2e.elasticpytorch.dev/rack"
HOST = "kubernetes.io/hostname"
RACKS = {"elastic-pytorch-worker": "a", "elastic-pytorch-worker2": "b", "elastic-pytorch-worker3": "b"}


@pytest.fixture
def racks(namespace: str) -> Iterator[str]:
    """The name of a topology: two racks, one of them with two nodes."""
    for node, rack in RACKS.items():
        run_kubectl("label", "node", node, f"{POOL}={namespace}", f"{RACK}={rack}")
    apply(kueue_object("Topology", {"name": namespace}, {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}))
    yield namespace
    run_kubectl("delete", "topologies.kueue.x-k8s.io", namespace, "--wait=false")
    run_kubectl("label", "node", *RACKS, f"{POOL}-", f"{RACK}-")


def test_the_workers_of_a_base_share_a_rack(
    make_queue: MakeQueue, start_queued: StartQueued, racks: str, namespace: str
) -> None:
    queue = make_queue(4, labels={POOL: namespace}, topology=racks)
    # More than half of a node: no two on one.
    job = start_queued("job", 3, 2, memory="13Gi", annotations={"kueue.x-k8s.io/podset-required-topology": RACK})
    job.until_world(3, QUEUE_SECONDS)
    base = Workload("job-base", namespace).status["admission"]["podSetAssignments"][0]
    assert base["topologyAssignment"]["levels"] == [HOST]
    nodes = {pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"]: [] for pod in job.pods()}
    for pod in job.pods():
        assert pod["spec"]["nodeSelector"][HOST] == pod["spec"]["nodeName"], "the node that Kueue has chosen"
        nodes[pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"]].append(pod["spec"]["nodeName"])
    assert {RACKS[node] for node in nodes["job-base"]} == {"b"}, "the one with two nodes"
    assert nodes["job-extra-1"] == ["elastic-pytorch-worker"]

    lost = next(pod["metadata"]["name"] for pod in job.pods() if pod["spec"]["nodeName"] == "elastic-pytorch-worker2")
    before = job.status["round"]
    job.kubectl("delete", "pod", lost, "--wait=false")
    job.until(lambda status: status["round"] > before and status["worldSize"] == 3, "a replacement", QUEUE_SECONDS)
    until(lambda: len({pod["spec"].get("nodeName") for pod in job.pods()}) == 3, lambda: f"each on its node: {job.status}")
    queue.until_used(3)
