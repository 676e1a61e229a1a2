"""Gangs that real schedulers place: `make test-gangs` and `make test-coscheduling`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from elastic_pytorch_operator.api.gang_schedulers import COSCHEDULING, KUBERNETES, GangScheduler

from tests.e2e.job_under_test import ENDLESS, JobUnderTest, StartJob, run_kubectl
from tests.e2e.other_controllers import installed
from tests.e2e.release import restored, upgrade
from tests.e2e.scheduling.slots import SLOT, give_slots
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.long]

# A group that had no room is tried again after a pause; then its pods start. With the patience of
# tests it is less than the five minutes after which a scheduler tries each pod again, whatever has
# happened.
PLACED_SECONDS = 80.0


@pytest.fixture(scope="module")
def coscheduling() -> Iterator[GangScheduler]:
    with installed("coscheduling"):
        yield COSCHEDULING


@pytest.fixture(scope="module")
def kubernetes() -> GangScheduler:
    """Kubernetes' own scheduler, if the cluster serves its PodGroups."""
    served = run_kubectl("get", "--raw", f"/apis/{KUBERNETES.api_version}", check=False)
    if served.returncode or not any(
        found["name"] == "podgroups" for found in json.loads(served.stdout)["resources"]
    ):
        pytest.skip(
            f"the cluster serves no PodGroup of {KUBERNETES.api_version}: "
            "make test-gangs makes one that does"
        )
    return KUBERNETES


@pytest.fixture(scope="module", params=["kubernetes", "coscheduling"])
def gang(request: pytest.FixtureRequest) -> Iterator[GangScheduler]:
    """A scheduler whose PodGroups the operator may manage."""
    scheduler: GangScheduler = request.getfixturevalue(request.param)
    with restored():
        upgrade(f"gangSchedulers={json.dumps([scheduler.name])}")
        yield scheduler


def start(start_job: StartJob, gang: GangScheduler, name: str, workers: int) -> JobUnderTest:
    return start_job(
        name=name,
        args=ENDLESS,
        replicas=workers,
        minReplicas=workers,
        maxReplicas=5,
        resources={"limits": {SLOT: "1"}, "requests": {"cpu": "50m", "memory": "256Mi"}},
        scheduling={"gangScheduler": gang.name},
    )


def group_of(job: JobUnderTest, gang: GangScheduler) -> dict[str, Any] | None:
    group, _, version = gang.api_version.partition("/")
    found = job.kubectl(
        "get", f"podgroups.{version}.{group}", job.name, "-o", "json", "--ignore-not-found"
    )
    return json.loads(found) if found else None


def minimum_of(job: JobUnderTest, gang: GangScheduler) -> int:
    group = group_of(job, gang)
    spec = group["spec"]
    minimum: int = (
        spec["schedulingPolicy"]["gang"]["minCount"] if gang.built_in else spec["minMember"]
    )
    return minimum


def placed(job: JobUnderTest) -> list[str]:
    return [pod["metadata"]["name"] for pod in job.pods() if pod["spec"].get("nodeName")]


def refused(found: dict[str, Any], type_: str) -> bool:
    """Whether a condition of an object says that there is no room for it."""
    conditions = found.get("status", {}).get("conditions", [])
    return any(
        (c["type"], c["status"], c.get("reason")) == (type_, "False", "Unschedulable")
        for c in conditions
    )


def until_no_room(job: JobUnderTest, gang: GangScheduler) -> None:
    """Waits until the scheduler has tried to place the group, and has found too little room."""

    def tried() -> bool:
        if gang.built_in:
            return refused(group_of(job, gang) or {}, "PodGroupInitiallyScheduled")
        return all(refused(pod, "PodScheduled") for pod in job.pods())

    until(tried, "an attempt of the scheduler")


def change(job: JobUnderTest, **spec: Any) -> None:
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", json.dumps({"spec": spec}))


def test_gang_is_placed_as_a_whole_and_then_grows_and_is_made_whole_one_by_one(
    start_job: StartJob, gang: GangScheduler, slot_nodes: list[str]
) -> None:
    give_slots(slot_nodes[:2], 1)
    job = start(start_job, gang, "gang", 3)
    until(lambda: len(job.pods()) == 3, "pods")
    until_no_room(job, gang)
    assert not placed(job), "there is room for two of them"
    assert minimum_of(job, gang) == 3

    give_slots(slot_nodes, 1)
    job.until_world(3, PLACED_SECONDS)
    job.until_stepping(job.members()[0], 3)

    change(job, replicas=5)
    until(lambda: len(job.pods()) == 5, "pods")
    give_slots(slot_nodes[:1], 2)
    job.until_world(4, PLACED_SECONDS)
    assert (len(placed(job)), minimum_of(job, gang)) == (4, 3)
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
    until(lambda: group_of(job, gang) is None, "no PodGroup of a suspended job")
    assert not job.pods()
    change(job, suspend=False)
    job.until_world(3, PLACED_SECONDS)
    assert minimum_of(job, gang) == 3


def test_of_two_gangs_without_room_for_both_one_trains_and_the_other_holds_nothing(
    start_job: StartJob, gang: GangScheduler, slot_nodes: list[str]
) -> None:
    give_slots(slot_nodes, 1)
    one = start(start_job, gang, "one", 2)
    one.until_world(2, PLACED_SECONDS)
    two = start(start_job, gang, "two", 2)
    until(lambda: len(two.pods()) == 2, "pods")
    until_no_room(two, gang)
    assert not placed(two), "there is room for one of them"
    one.kubectl("delete", "epj", one.name, "--wait=false")
    two.until_world(2, PLACED_SECONDS)
