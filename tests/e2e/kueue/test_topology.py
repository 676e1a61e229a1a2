"""Kueue's topology-aware scheduling: a base's workers share a rack, on nodes that Kueue chooses."""

from collections.abc import Iterator

import pytest

from tests.e2e.job_under_test import run_kubectl
from tests.e2e.kueue.conftest import QUEUE_SECONDS, MakeQueue, StartQueued
from tests.e2e.kueue.workloads import Workload, apply, kueue_object
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("operator_with_queues")]

POOL, RACK = "e2e.elasticpytorch.dev/pool", "e2e.elasticpytorch.dev/rack"
HOST = "kubernetes.io/hostname"
UNIT = "elasticpytorch.dev/unit"
RACKS = {
    "elastic-pytorch-worker": "a",
    "elastic-pytorch-worker2": "b",
    "elastic-pytorch-worker3": "b",
}


def worker_pods() -> list[str]:
    return run_kubectl(
        "get", "pods", "-A", "-l", "elasticpytorch.dev/job-name", "-o", "name"
    ).stdout.split()


@pytest.fixture
def racks(namespace: str) -> Iterator[str]:
    """The name of a topology: two racks, one of them with two nodes.

    Kueue counts what pods of earlier tests request until they are gone, and does not look again
    when they are.
    """
    until(lambda: not worker_pods(), lambda: f"pods of earlier tests to go: {worker_pods()}")
    for node, rack in RACKS.items():
        run_kubectl("label", "node", node, f"{POOL}={namespace}", f"{RACK}={rack}")
    apply(
        kueue_object(
            "Topology", {"name": namespace}, {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}
        )
    )
    yield namespace
    run_kubectl("delete", "topologies.kueue.x-k8s.io", namespace, "--wait=false")
    run_kubectl("label", "node", *RACKS, f"{POOL}-", f"{RACK}-")


def test_the_workers_of_a_base_share_a_rack(
    make_queue: MakeQueue, start_queued: StartQueued, racks: str, namespace: str
) -> None:
    queue = make_queue(4, labels={POOL: namespace}, topology=racks)
    # More than half of a node: no two on one.
    job = start_queued(
        "job", 3, 2, memory="13Gi", annotations={"kueue.x-k8s.io/podset-required-topology": RACK}
    )
    job.until_world(3, QUEUE_SECONDS)
    base = Workload("job-base", namespace).status["admission"]["podSetAssignments"][0]
    assert base["topologyAssignment"]["levels"] == [HOST]
    nodes = {pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"]: [] for pod in job.pods()}
    for pod in job.pods():
        assert pod["spec"]["nodeSelector"][HOST] == pod["spec"]["nodeName"], (
            "the node that Kueue has chosen"
        )
        nodes[pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"]].append(
            pod["spec"]["nodeName"]
        )
    assert {RACKS[node] for node in nodes["job-base"]} == {"b"}, "the one with two nodes"
    assert nodes["job-extra-1"] == ["elastic-pytorch-worker"]

    lost = next(
        pod["metadata"]["name"]
        for pod in job.pods()
        if pod["spec"]["nodeName"] == "elastic-pytorch-worker2"
    )
    before = job.status["round"]
    job.kubectl("delete", "pod", lost, "--wait=false")
    job.until(
        lambda status: status["round"] > before and status["worldSize"] == 3,
        "a replacement",
        QUEUE_SECONDS,
    )
    until(
        lambda: len({pod["spec"].get("nodeName") for pod in job.pods()}) == 3,
        lambda: f"each on its node: {job.status}",
    )
    queue.until_used(3)


def test_each_unit_is_in_one_rack(
    make_queue: MakeQueue, start_queued: StartQueued, racks: str, namespace: str
) -> None:
    """A node holds two pods: rack a has room for one unit, rack b for two."""
    queue = make_queue(6, labels={POOL: namespace}, topology=racks)
    together = {"unitTopology": {"topologyKey": RACK}}
    job = start_queued("job", 6, 4, memory="9Gi", unitReplicas=2, scheduling=together)
    job.until_world(6, QUEUE_SECONDS)
    base = Workload("job-base", namespace).status["admission"]["podSetAssignments"][0]
    assert base["count"] == 4, "the two units of minReplicas"

    def units() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for pod in job.pods():
            found.setdefault(pod["metadata"]["labels"][UNIT], set()).add(
                RACKS[pod["spec"]["nodeName"]]
            )
        return found

    placed = units()
    assert sorted("".join(racks) for racks in placed.values()) == ["a", "b", "b"], placed

    lost = next(
        pod["metadata"]["name"] for pod in job.pods() if pod["metadata"]["labels"][UNIT] == "0"
    )
    before = job.status["round"]
    job.kubectl("delete", "pod", lost, "--wait=false")
    job.until(
        lambda status: status["round"] > before and status["worldSize"] == 4,
        "a group without the unit",
        QUEUE_SECONDS,
    )
    job.until_world(6, QUEUE_SECONDS)
    assert units() == placed
    assert job.status["failures"] == 0
    queue.until_used(6)
