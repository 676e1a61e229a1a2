"""Gangs that Kubernetes' own scheduler places: `make test-gangs` makes a cluster that serves its PodGroups."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from elastic_pytorch_operator.api.gang_schedulers import KUBERNETES

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.e2e.release import restored, upgrade
from tests.e2e.scheduling.slots import SLOT, give_slots
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.long]

GROUPS = f"podgroups.v1beta1.{KUBERNETES.api_version.partition('/')[0]}"
ENDLESS = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]
PLACED_SECONDS = 180.0  # a group that had no room is tried again after a pause; then its pods start


@pytest.fixture(scope="module", autouse=True)
def permitted() -> Iterator[None]:
    """The operator may manage the PodGroups of Kubernetes, if the cluster has them."""
    served = run_kubectl("get", "--raw", f"/apis/{KUBERNETES.api_version}", check=False)
    if served.returncode or not any(found["name"] == "podgroups" for found in json.loads(served.stdout)["resources"]):
        pytest.skip(f"the cluster serves no PodGroup of {KUBERNETES.api_version}: make test-gangs makes one that does")
    with restored():
        upgrade('gangSchedulers=["Kubernetes"]')
        yield


def start(start_job: StartJob, name: str, workers: int, **spec: Any) -> JobUnderTest:
    return start_job(
        name=name,
        args=ENDLESS,
        replicas=workers,
        minReplicas=workers,
        maxReplicas=5,
        resources={"limits": {SLOT: "1"}, "requests": {"cpu": "50m", "memory": "256Mi"}},
        scheduling={"gang": {"scheduler": KUBERNETES.name}},
        **spec,
    )


def group_of(job: JobUnderTest) -> dict[str, Any] | None:
    found = job.kubectl("get", GROUPS, job.name, "-o", "json", "--ignore-not-found")
    return json.loads(found) if found else None


def minimum_of(job: JobUnderTest) -> int:
    group = group_of(job)
    return group["spec"]["schedulingPolicy"]["gang"]["minCount"] if group else 0


def placed(job: JobUnderTest) -> list[str]:
    """The pods that have a node."""
    return [pod["metadata"]["name"] for pod in job.pods() if pod["spec"].get("nodeName")]


def until_no_room(job: JobUnderTest) -> None:
    """Waits until the scheduler has tried to place the group, and has found too little room."""

    def tried() -> bool:
        conditions = (group_of(job) or {}).get("status", {}).get("conditions", [])
        found = next((c for c in conditions if c["type"] == "PodGroupInitiallyScheduled"), {})
        return (found.get("status"), found.get("reason")) == ("False", "Unschedulable")

    until(tried, "an attempt of the scheduler")


def change(job: JobUnderTest, **spec: Any) -> None:
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", json.dumps({"spec": spec}))


def test_gang_is_placed_as_a_whole_and_then_grows_and_is_made_whole_one_by_one(
    start_job: StartJob, slot_nodes: list[str]
) -> None:
    give_slots(slot_nodes[:2], 1)
    job = start(start_job, "gang", 3)
    until(lambda: len(job.pods()) == 3, "pods")
    until_no_room(job)
    assert not placed(job), "there is room for two of them"
    assert minimum_of(job) == 3

    give_slots(slot_nodes, 1)
    job.until_world(3, PLACED_SECONDS)
    job.until_stepping(job.members()[0], 3)

    change(job, replicas=5)
    until(lambda: len(job.pods()) == 5, "pods")
    give_slots(slot_nodes[:1], 2)
    job.until_world(4, PLACED_SECONDS)
    assert (len(placed(job)), minimum_of(job)) == (4, 3)
    give_slots(slot_nodes, 2)
    grown = job.until_world(5, PLACED_SECONDS)

    lost = job.members()[-1]
    job.kubectl("delete", "pod", lost, "--wait=false")
    job.until(
        lambda status: status["round"] > grown["round"] and status["worldSize"] == 5,
        "a replacement in the group",
        PLACED_SECONDS,
    )
    assert lost not in job.members()

    change(job, replicas=3)
    job.until_world(3)
    change(job, suspend=True)
    until(lambda: group_of(job) is None, "no PodGroup of a suspended job")
    assert not job.pods()
    change(job, suspend=False)
    job.until_world(3, PLACED_SECONDS)
    assert minimum_of(job) == 3


def test_of_two_gangs_without_room_for_both_one_trains_and_the_other_holds_nothing(
    start_job: StartJob, slot_nodes: list[str]
) -> None:
    give_slots(slot_nodes, 1)
    one = start(start_job, "one", 2)
    one.until_world(2, PLACED_SECONDS)
    two = start(start_job, "two", 2)
    until(lambda: len(two.pods()) == 2, "pods")
    until_no_room(two)
    assert not placed(two), "there is room for one of them"
    one.kubectl("delete", "epj", one.name, "--wait=false")
    two.until_world(2, PLACED_SECONDS)
