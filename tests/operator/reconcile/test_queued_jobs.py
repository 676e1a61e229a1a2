"""Jobs of one queue grow into free quota and give it back by workers; none runs outside."""

import asyncio

import pytest
from elastic_pytorch_operator.api import kueue

from tests.operator.queue_world import TICK_SECONDS, QueueWorld, playing
from tests.situations import situations


def queued(world: QueueWorld) -> int:
    return sum(
        kueue.ANNOTATION_WORKLOAD in pod["metadata"]["annotations"] for pod in world.pods("a")
    )


async def test_two_jobs_share_a_queue(world: QueueWorld) -> None:
    world.cluster.add_priority_class("high", 1000)
    world.submit("a", 2, 6)
    await world.until(lambda: world.size("a") == 6)
    grown = len(world.rounds["a"])

    world.submit("b", 2, 4)
    await world.until(lambda: world.size("b") >= 2)
    assert world.size("a") == 4
    assert world.rounds["a"][grown:] == [("Evicted", 4)], "in one round"
    await world.until(lambda: world.condition("b", "Degraded")[1] == "WaitingForQuota")
    assert (
        "waits for quota in queue team for 2 more workers: couldn't assign"
        in world.condition("b", "Degraded")[2]
    )

    world.succeed("b")
    await world.until(lambda: world.size("a") == 6)
    await world.until(
        lambda: (
            world.cluster.workload("b-base")["status"]["conditions"][-1]["type"] == kueue.FINISHED
        )
    )
    assert "b-extra-1" not in world.cluster.workloads

    step = world.steps["a"]
    world.submit("urgent", None, 6, priority="high")
    await world.until(lambda: world.size("urgent") == 6)
    assert world.rounds["a"][-1] == ("Evicted", 0)
    assert world.pods("a") == []
    assert world.condition("a", "Running")[:2] == ("False", "WaitingForQuota")
    assert world.condition("a", "Running")[2].startswith("waits for quota in queue team: ")
    assert world.cluster.job("a")["status"]["state"] == "Pending"

    world.succeed("urgent")
    await world.until(lambda: world.size("a") == 6)
    assert world.steps["a"] >= step
    assert world.cluster.job("a")["status"]["failures"] == 0
    assert len(world.events("a", "Evicted")) == 2
    assert len(world.events("a", "QuotaGranted")) == 2
    world.succeed("a")
    await world.until(lambda: world.cluster.job("a")["status"]["state"] == "Complete")


@pytest.mark.parametrize("quota", [3])
async def test_quota_of_an_evicted_extra_moves_only_after_its_pod_is_gone(
    world: QueueWorld,
) -> None:
    world.submit("a", 1, 3)
    await world.until(lambda: world.size("a") == 3)
    world.cluster.log.clear()
    world.submit("b", 1, 1)
    await world.until(lambda: "evicted a-extra-2" in world.cluster.log)
    for _ in range(100):
        if "admitted b-base" in world.cluster.log:
            break
        assert len(world.pods("a")) <= 3
        await world.until(lambda: True)
        if len(world.pods("a")) == 3:
            assert "admitted b-base" not in world.cluster.log
    await world.until(lambda: "admitted b-base" in world.cluster.log)
    assert len(world.pods("a")) == 2


async def test_job_of_a_queue_is_not_started_by_an_operator_without_kueue() -> None:
    async with playing(QueueWorld(supported=False)) as world:
        world.submit("a", 2, 3)
        await world.until(lambda: world.condition("a", "Running")[1] == "KueueDisabled")
        assert "set kueue.enabled in the operator's chart" in world.condition("a", "Running")[2]
        assert (world.cluster.pods(), world.cluster.workloads) == ([], {})
        assert len(world.events("a", "KueueDisabled")) == 1


async def test_scaled_job_gives_back_extras_and_asks_for_more(world: QueueWorld) -> None:
    world.submit("a", 1, 4)
    await world.until(lambda: world.size("a") == 4)
    world.change("a", replicas=2)
    await world.until(lambda: sorted(world.cluster.workloads) == ["a-base", "a-extra-1"])
    assert world.rounds["a"][-1] == ("ScaledDown", 2)
    world.change("a", replicas=4)
    await world.until(lambda: world.size("a") == 4)


@pytest.mark.parametrize("quota", [4])
async def test_job_is_made_smaller_at_once_though_its_first_extra_waits(world: QueueWorld) -> None:
    world.submit("a", 1, 4)
    await world.until(lambda: world.size("a") == 4)
    world.cluster.quota = 3
    world.cluster.evict("a-extra-1", kueue.PREEMPTED, "the quota is lower")
    await world.until(lambda: world.size("a") == 3)
    await world.until(lambda: "for 1 more worker: couldn" in world.condition("a", "Degraded")[2])
    world.change("a", replicas=2)
    await world.until(lambda: sorted(world.cluster.workloads) == ["a-base", "a-extra-2"])
    await world.until(lambda: len(world.pods("a")) == 2)
    assert world.rounds["a"][-2:] == [("Evicted", 3), ("ScaledDown", 2)]


@pytest.mark.parametrize("quota", [3])
@situations(
    "before, minimum",
    {"a Workload that is being deleted": (1, 1), "a base that is being made smaller": (3, 2)},
)
async def test_quota_that_is_on_its_way_back_is_not_used_again(
    world: QueueWorld, before: int, minimum: int
) -> None:
    world.submit("a", before, 3)
    await world.until(lambda: world.size("a") == 3)
    world.change("a", minReplicas=minimum, replicas=2)
    await world.until(lambda: world.size("a") == 2)
    world.cluster.call_seconds |= {"patch Workload": 20.0, "delete Workload": 20.0}
    await world.until(lambda: len(world.pods("a")) == 2)
    await asyncio.sleep(1.0)
    world.change("a", replicas=3)
    await asyncio.sleep(15.0)
    assert len(world.pods("a")) == 2
    world.cluster.call_seconds.clear()
    await world.until(lambda: world.size("a") == 3)


@pytest.mark.parametrize("quota", [4])
async def test_spare_runs_by_quota_and_gives_it_back_before_any_worker(world: QueueWorld) -> None:
    world.submit("a", None, 2, spares=1)
    await world.until(
        lambda: world.size("a") == 2 and world.cluster.job("a")["status"].get("readySpares") == 1
    )
    assert queued(world) == 3
    lost = world.pods("a")[0]["metadata"]["name"]
    world.cluster.finish_deletion("default", lost)
    await world.until(lambda: len(world.rounds["a"]) == 2)
    await world.until(
        lambda: world.cluster.job("a")["status"]["readySpares"] == 1 and queued(world) == 3
    )
    world.submit("b", None, 2)
    await world.until(lambda: world.size("b") == 2)
    assert len(world.pods("a")) == 2
    assert [size for _, size in world.rounds["a"]] == [2, 2]
    world.succeed("b")
    await world.until(lambda: world.cluster.job("a")["status"]["readySpares"] == 1)


@pytest.mark.parametrize("quota", [2])
async def test_pod_that_a_user_deletes_is_replaced_when_its_quota_is_free(
    world: QueueWorld,
) -> None:
    world.submit("a", 2, 2)
    await world.until(lambda: world.size("a") == 2)
    deleted = world.pods("a")[0]["metadata"]
    world.cluster.begin_deletion("default", deleted["name"])
    await world.until(
        lambda: deleted["name"] not in [pod["metadata"]["name"] for pod in world.pods("a")]
    )
    await world.until(lambda: world.size("a") == 2)


async def test_job_waits_for_a_queue_that_is_missing(world: QueueWorld) -> None:
    world.cluster.queues = ("other",)
    world.submit("a", 2, 2)
    await world.until(lambda: "LocalQueue team doesn't exist" in world.condition("a", "Running")[2])
    assert world.events("a", "WaitingForQuota") == [
        "The job waits for quota in queue team: LocalQueue team doesn't exist"
    ]
    world.cluster.queues = ("team",)
    await world.until(lambda: world.size("a") == 2)


@pytest.mark.parametrize("quota", [3])
@situations("label", {"removed": None, "empty": ""})
async def test_job_that_leaves_its_queue_stops_gives_its_quota_back_and_starts_without(
    world: QueueWorld, label: str | None
) -> None:
    world.submit("a", 2, 4)
    await world.until(lambda: world.size("a") == 3)
    step = world.steps["a"]
    world.relabel("a", label)
    await world.until(lambda: world.size("a") == 0)
    assert world.rounds["a"][-1] == ("Evicted", 0), "at a step boundary"
    status, reason, message = world.condition("a", "Running")
    assert (status, reason) == ("False", "LeavingQueue")
    assert message.startswith("leaves queue team: it returns its quota when its pods are gone")
    while world.cluster.used:
        assert queued(world) == len(world.pods("a")), "no pod without quota"
        await asyncio.sleep(TICK_SECONDS)
    await world.until(lambda: world.size("a") == 4)
    assert world.cluster.workloads == {}
    assert queued(world) == 0, "pods of no queue have none of Kueue's labels"
    assert len(world.events("a", "LeavingQueue")) == 1
    assert world.steps["a"] > step
    assert world.cluster.job("a")["status"]["failures"] == 0


async def test_new_leader_goes_on_where_a_job_leaves_its_queue() -> None:
    async with playing(QueueWorld()) as world:
        world.submit("a", 2, 3)
        await world.until(lambda: world.size("a") == 3)
        world.relabel("a", None)
        await world.until(
            lambda: any("deletionTimestamp" in pod["metadata"] for pod in world.pods("a"))
        )
    async with playing(QueueWorld(before=world)) as world:
        while world.cluster.used:
            assert queued(world) == len(world.pods("a"))
            await asyncio.sleep(TICK_SECONDS)
        await world.until(lambda: world.size("a") == 3)
        assert (world.cluster.workloads, queued(world)) == ({}, 0)


async def test_new_leader_stops_a_job_whose_label_was_taken_off_between_two_leaders() -> None:
    async with playing(QueueWorld()) as world:
        world.submit("a", 2, 3)
        await world.until(lambda: world.size("a") == 3)
        world.watching = False
        world.relabel("a", None)
    async with playing(QueueWorld(before=world)) as world:
        await world.until(lambda: world.condition("a", "Resizing")[1] == "LeavingQueue")
        while world.cluster.used:
            assert queued(world) == len(world.pods("a"))
            await asyncio.sleep(TICK_SECONDS)
        await world.until(lambda: world.size("a") == 3)


@pytest.mark.parametrize("quota", [2])
async def test_preempted_job_that_changes_its_queue_waits_in_the_other_one(
    world: QueueWorld,
) -> None:
    world.cluster.queues = ("team", "other")
    world.cluster.add_priority_class("high", 1000)
    world.submit("a", 2, 2)
    await world.until(lambda: world.size("a") == 2)
    world.submit("b", 2, 2, priority="high")
    await world.until(lambda: "evicted a-base" in world.cluster.log)
    world.relabel("a", "other")
    await world.until(lambda: world.size("b") == 2)
    assert world.pods("a") == []
    await world.until(lambda: world.cluster.workloads["a-base"]["spec"]["queueName"] == "other")
    world.succeed("b")
    await world.until(lambda: world.size("a") == 2)
    assert len(world.events("a", "LeavingQueue")) == 1


async def test_running_job_that_is_put_into_a_queue_stops_before_it_asks_for_quota(
    world: QueueWorld,
) -> None:
    world.submit("a", 2, 3)
    world.relabel("a", None)
    await world.until(lambda: world.size("a") == 3)
    assert queued(world) == 0
    world.relabel("a", "team")
    await world.until(lambda: world.size("a") == 0)
    while world.pods("a"):
        assert world.cluster.workloads == {}
        await asyncio.sleep(TICK_SECONDS)
    await world.until(lambda: world.size("a") == 3)
    assert queued(world) == 3
