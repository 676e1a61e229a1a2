"""A running job goes on by its last valid spec after an invalid edit, also with a new leader."""

import asyncio

from elastic_pytorch_operator.api import names

from tests.operator.queue_world import QueueWorld, playing

FIELD = "spec.failurePolicy.maxFailures"
INVALID = {"failurePolicy": {"maxFailures": -1}}


async def begin(world: QueueWorld) -> None:
    world.submit("a", 2, 4, activeDeadlineSeconds=3600)
    await world.until(lambda: world.size("a") == 4)
    world.change("a", replicas=3, **INVALID)
    await world.until(lambda: FIELD in world.condition("a", names.DEGRADED)[2])
    assert world.condition("a", names.DEGRADED)[:2] == ("True", names.INVALID_SPEC)
    await asyncio.sleep(30.0)
    assert world.size("a") == 4, "as the last valid spec has it"


async def is_evicted(world: QueueWorld) -> None:
    world.cluster.add_priority_class("high", 1000)
    world.submit("urgent", None, 6, priority="high")
    await world.until(lambda: world.size("urgent") == 6, 600.0)
    assert not world.pods("a")
    assert FIELD in world.condition("a", names.RUNNING)[2]


async def test_job_with_an_invalid_edit_returns_its_quota(world: QueueWorld) -> None:
    await begin(world)
    await is_evicted(world)


async def test_next_leader_finds_the_last_valid_spec() -> None:
    async with playing(QueueWorld()) as world:
        await begin(world)
    async with playing(QueueWorld(before=world)) as world:
        await asyncio.sleep(60.0)
        status = world.cluster.job("a")["status"]
        assert (status["state"], status["worldSize"], len(world.pods("a"))) == (names.RUNNING, 4, 4)
        await is_evicted(world)


async def test_corrected_spec_holds_at_once(world: QueueWorld) -> None:
    await begin(world)
    world.change("a", failurePolicy={"maxFailures": 1})
    await world.until(lambda: world.size("a") == 3)
    await world.until(lambda: world.condition("a", names.DEGRADED)[0] == "False")
    assert "lastValidSpec" not in world.cluster.job("a")["status"]


async def test_job_with_an_invalid_edit_loses_a_worker_and_is_suspended(world: QueueWorld) -> None:
    await begin(world)
    world.cluster.finish_deletion("default", world.pods("a")[0]["metadata"]["name"])
    await world.until(lambda: world.size("a") == 3)
    await world.until(lambda: world.size("a") == 4)
    world.change("a", suspend=True)
    await world.until(lambda: world.condition("a", names.SUSPENDED)[0] == "True")
    assert (world.pods("a"), FIELD in world.condition("a", names.SUSPENDED)[2]) == ([], True)
    world.change("a", suspend=False)
    await asyncio.sleep(60.0)
    assert not world.pods("a"), "a spec that is not valid resumes nothing"
    assert world.condition("a", names.RUNNING)[:2] == ("False", names.INVALID_SPEC)
    world.change("a", failurePolicy={})
    await world.until(lambda: world.size("a") == 3)


async def test_job_that_has_not_begun_waits_without_quota_until_its_spec_is_valid(
    world: QueueWorld,
) -> None:
    world.submit("a", 2, 4, **INVALID)
    await world.until(
        lambda: world.condition("a", names.RUNNING)[:2] == ("False", names.INVALID_SPEC)
    )
    assert world.condition("a", names.FAILED)[0] == "False"
    assert (world.cluster.job("a")["status"]["state"], world.cluster.used) == ("Pending", 0)
    world.change("a", failurePolicy={})
    await world.until(lambda: world.size("a") == 4)


async def test_queued_job_that_is_made_invalid_asks_for_no_quota(world: QueueWorld) -> None:
    world.submit("first", None, 6)
    await world.until(lambda: world.size("first") == 6)
    world.submit("a", 2, 4)
    await world.until(lambda: world.condition("a", names.RUNNING)[1] == names.WAITING_FOR_QUOTA)
    world.change("a", **INVALID)
    await world.until(lambda: world.condition("a", names.RUNNING)[1] == names.INVALID_SPEC)
    world.succeed("first")
    await asyncio.sleep(60.0)
    assert (world.pods("a"), world.cluster.used) == ([], 0)
