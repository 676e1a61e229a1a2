import asyncio

import pytest
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.planning.failed_writes import DRY_RUN, STATUS
from elastic_pytorch_operator.reconcile.job_writer import JobWrite, WriteKind
from elastic_pytorch_operator.reconcile.write_slots import MAX_WRITES

from tests.operator.reconcile.job_writes import KINDS, QUOTA, World


async def test_planning_goes_on_while_the_status_is_written() -> None:
    world = World()
    world.ask("status")
    await asyncio.sleep(0.5)
    world.ask("pod-1", "delete-7")
    await asyncio.sleep(0.1)
    assert (world.sent, world.done) == (["status", "pod-1", "delete-7"], [])


async def test_what_is_on_its_way_is_not_sent_again() -> None:
    world = World()
    world.ask("pod-1", "delete-7", "status", "service")
    await asyncio.sleep(0.5)
    world.ask("pod-1", "delete-7", "status", "service")
    await asyncio.sleep(5)
    assert sorted(world.sent) == ["delete-7", "pod-1", "service", "status"]
    assert world.idle


async def test_what_the_newest_plan_no_longer_asks_for_is_not_sent() -> None:
    world = World()
    world.ask(*world.pods(100))
    await asyncio.sleep(0.5)
    world.ask("pod-1")
    await asyncio.sleep(5)
    assert world.sent == ["pod-0", "pod-1"]


async def test_deletion_is_sent_although_the_next_plan_takes_the_pod_for_deleted() -> None:
    world = World()
    deletions = [f"delete-{number}" for number in range(100)]
    world.ask(*deletions)
    await asyncio.sleep(0.5)
    assert len(world.sent) < 100
    assert world.writer.pods_being_deleted == set(deletions)
    world.ask("status")
    await asyncio.sleep(20)
    assert sorted(world.sent) == sorted([*deletions, "status"])
    assert world.writer.pods_being_deleted == set()


async def test_workload_of_a_pod_is_known_while_its_creation_is_on_its_way() -> None:
    world = World()
    world.writer.ask([world.write("pod-1", creates=(1, "lm-base")), world.write("status")], {})
    await asyncio.sleep(0.5)
    assert world.writer.pods_being_created == {1: "lm-base"}
    await asyncio.sleep(5)
    assert world.writer.pods_being_created == {}


async def test_nothing_is_deleted_for_a_job_that_is_gone() -> None:
    world = World()
    world.ask(*(f"delete-{number}" for number in range(100)))
    await asyncio.sleep(0.5)
    world.writer.drop()
    await asyncio.sleep(20)
    assert len(world.sent) < 100


async def test_of_the_status_the_newest_is_written() -> None:
    world = World()
    for other in (world.another(), world.another()):  # take all slots
        other.ask([world.write(f"delete-{index}") for index in range(100)], {})
    said: list[str] = []
    for text in ("old", "newest"):

        async def send(text: str = text) -> None:
            said.append(text)

        world.writer.ask([JobWrite(WriteKind.STATUS, STATUS, STATUS, send)], {})
    await asyncio.sleep(10)
    assert said == ["newest"]


def test_each_kind_of_write_has_a_lane_of_its_own_in_the_order_of_sending() -> None:
    assert [kind for kind, _ in KINDS.values()] == list(WriteKind)


@pytest.mark.parametrize(
    ("asked", "sent_at_once"),
    [
        (
            ["event-1", "job", "delete-7", "workload-a", "status", "service"],
            ["service", "status", "workload-a", "delete-7", "job", "event-1"],
        ),
        (["pod-0", "status", "workload-a"], ["status", "workload-a", "pod-0"]),
        (["pod-0", "pod-1", "workload-a", "workload-b"], ["workload-a", "workload-b", "pod-0"]),
        (["try", "pod-0", "workload-a"], ["try", "workload-a"]),
        (["claim-a", "claim-b", "pod-0", "workload-a"], ["claim-a", "workload-a"]),
        (["group", "pod-0", "workload-a"], ["group", "workload-a"]),
    ],
)
async def test_what_is_sent_at_once_and_in_which_order(
    asked: list[str], sent_at_once: list[str]
) -> None:
    world = World()
    world.ask(*asked)
    await asyncio.sleep(0.5)
    assert world.sent == sent_at_once


@pytest.mark.parametrize("refused", ["claim-a", "pod-0", "group", "workload-a"])
async def test_quota_is_asked_for_and_given_back_whatever_is_refused_beside_it(
    refused: str,
) -> None:
    world = World()
    world.errors[refused] = QUOTA
    for _ in range(2):
        world.ask("claim-a", "group", "pod-0", "pod-1", "workload-a", "workload-b")
        await asyncio.sleep(2)
    assert "workload-b" in world.done


async def test_first_of_many_pods_is_created_alone_and_the_others_together() -> None:
    world = World()
    world.ask(*world.pods(20))
    await asyncio.sleep(0.5)
    assert world.sent == ["pod-0"]
    await asyncio.sleep(1.0)
    assert world.sent == world.pods(20)


@pytest.mark.parametrize("kind", ["delete", "workload"])
async def test_job_is_planned_again_once_when_all_writes_of_a_kind_are_done(kind: str) -> None:
    world = World()
    world.ask(*(f"{kind}-{number}" for number in range(1900)))
    await asyncio.sleep(0.5)
    assert len(world.sent) == MAX_WRITES // 2
    await asyncio.sleep(100)
    assert len(world.done) == 1900
    assert [ended.rest for ended in world.ended].count(True) == 1


@pytest.mark.parametrize(
    ("leads_on", "again", "planned"),
    [(True, False, True), (False, False, False), (False, True, True)],
)
async def test_write_that_tells_a_plan_nothing_causes_none_unless_it_kept_another_one_waiting(
    leads_on: bool, again: bool, planned: bool
) -> None:
    world = World()
    world.writer.ask([world.write("status", leads_on=leads_on)], {})
    await asyncio.sleep(0.5)
    if again:
        world.ask("status")
    await asyncio.sleep(1)
    assert world.sent == ["status"]
    assert [ended.rest for ended in world.ended] == [planned]


@pytest.mark.parametrize(
    ("error", "created"),
    [(QUOTA, True), (ClusterError(422, 'Pod "x" is invalid: spec.y: Required value'), False)],
)
async def test_pod_is_not_created_if_a_dry_run_has_found_it_malformed(
    error: ClusterError, created: bool
) -> None:
    world = World()
    world.errors["try"] = error
    world.ask("try", "pod-0")
    await asyncio.sleep(3)
    assert ("pod-0" in world.sent) is created
    assert world.failed == [DRY_RUN]


async def test_events_come_last_and_outlive_the_plan() -> None:
    world = World()
    world.ask("event-1", "event-2", "pod-0", "pod-1")
    await asyncio.sleep(0.5)
    world.writer.drop()
    await asyncio.sleep(5)
    assert world.sent == ["pod-0", "event-1", "event-2"]
    assert world.idle
