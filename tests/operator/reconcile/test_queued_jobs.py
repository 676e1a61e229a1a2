"""Jobs that share a queue: they grow into free quota, give it back worker by worker, and none runs outside it."""

import asyncio

import pytest
from elastic_pytorch_operator.api import kueue

from tests.operator.kueue_stand_in import FLAVOR, NODE_LABELS
from tests.operator.queue_world import TICK_SECONDS, QueueWorld, playing
from tests.situations import situations


def queued(world: QueueWorld) -> int:
    """How many pods of the job `a` run by a Workload's quota."""
    return sum(kueue.ANNOTATION_WORKLOAD in pod["metadata"]["annotations"] for pod in world.pods("a"))


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
    assert "waits for quota in queue team for 2 more workers: couldn't assign" in world.condition("b", "Degraded")[2]

    world.succeed("b")
    await world.until(lambda: world.size("a") == 6)
    await world.until(lambda: world.cluster.workload("b-base")["status"]["conditions"][-1]["type"] == kueue.FINISHED)
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
async def test_quota_of_an_evicted_extra_moves_only_after_its_pod_is_gone(world: QueueWorld) -> None:
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


async def test_pods_carry_what_kueue_has_assigned(world: QueueWorld) -> None:
    world.submit("a", 2, 3)
    await world.until(lambda: world.size("a") == 3)
    pods = world.pods("a")
    assert all(pod["spec"]["nodeSelector"] == NODE_LABELS for pod in pods)
    owners = sorted(pod["metadata"]["annotations"][kueue.ANNOTATION_WORKLOAD] for pod in pods)
    assert owners == ["a-base", "a-base", "a-extra-1"]
    labels = pods[0]["metadata"]["labels"]
    assert kueue.LABEL_QUEUE not in labels
    assert (labels[kueue.LABEL_LOCAL_QUEUE], labels[kueue.LABEL_CLUSTER_QUEUE]) == ("team", "shared")


async def test_job_of_a_queue_is_not_started_by_an_operator_without_kueue() -> None:
    async with playing(QueueWorld(supported=False)) as world:
        world.submit("a", 2, 3)
        await world.until(lambda: world.condition("a", "Running")[1] == "KueueDisabled")
        assert "set kueue.enabled in the operator's chart" in world.condition("a", "Running")[2]
        assert (world.cluster.pods(), world.cluster.workloads) == ([], {})
        assert len(world.events("a", "KueueDisabled")) == 1


async def test_suspended_job_gives_its_quota_back_and_asks_again_when_it_is_resumed(world: QueueWorld) -> None:
    world.submit("a", 2, 4)
    await world.until(lambda: world.size("a") == 4)
    world.change("a", suspend=True)
    await world.until(lambda: world.condition("a", "Suspended")[0] == "True" and not world.cluster.workloads)
    world.change("a", suspend=False)
    await world.until(lambda: world.size("a") == 4)
    assert world.cluster.workload("a-base")["status"]["admission"]


async def test_scaled_job_gives_back_extras_and_asks_for_more(world: QueueWorld) -> None:
    world.submit("a", 1, 4)
    await world.until(lambda: world.size("a") == 4)
    world.change("a", replicas=2)
    await world.until(lambda: sorted(world.cluster.workloads) == ["a-base", "a-extra-1"])
    assert world.rounds["a"][-1] == ("ScaledDown", 2)
    world.change("a", replicas=4)
    await world.until(lambda: world.size("a") == 4)


@pytest.mark.parametrize("quota", [4])
async def test_spare_runs_by_quota_and_gives_it_back_before_any_worker(world: QueueWorld) -> None:
    world.submit("a", None, 2, spares=1)
    await world.until(lambda: world.size("a") == 2 and world.cluster.job("a")["status"].get("readySpares") == 1)
    assert queued(world) == 3
    lost = world.pods("a")[0]["metadata"]["name"]
    world.cluster.finish_deletion("default", lost)
    await world.until(lambda: len(world.rounds["a"]) == 2)
    await world.until(lambda: world.cluster.job("a")["status"]["readySpares"] == 1 and queued(world) == 3)
    world.submit("b", None, 2)
    await world.until(lambda: world.size("b") == 2)
    assert len(world.pods("a")) == 2
    assert [size for _, size in world.rounds["a"]] == [2, 2]
    world.succeed("b")
    await world.until(lambda: world.cluster.job("a")["status"]["readySpares"] == 1)


async def test_lowered_minimum_costs_no_worker(world: QueueWorld) -> None:
    def counts() -> dict[str, int]:
        found = (world.cluster.workload(name) for name in sorted(world.cluster.workloads) if name.startswith("a-"))
        return {workload["metadata"]["name"]: workload["spec"]["podSets"][0]["count"] for workload in found}

    world.submit("full", None, 2)
    await world.until(lambda: world.size("full") == 2)
    world.submit("a", 3, 4)
    await world.until(lambda: world.size("a") == 4)
    rounds = len(world.rounds["a"])
    world.change("a", minReplicas=2)
    await world.until(lambda: "a-extra-2" in world.cluster.workloads)
    await asyncio.sleep(10)
    assert counts() == {"a-base": 3, "a-extra-1": 1, "a-extra-2": 1}, "the queue is full"

    world.succeed("full")
    await world.until(lambda: counts() == {"a-base": 2, "a-extra-1": 1, "a-extra-2": 1})
    await world.until(lambda: world.cluster.used == 4)
    assert len(world.rounds["a"]) == rounds


@pytest.mark.parametrize("quota", [2])
async def test_reservation_that_kueue_puts_back_by_a_late_write_is_released_again(world: QueueWorld) -> None:
    world.cluster.add_priority_class("high", 1000)
    world.submit("a", 2, 2)
    await world.until(lambda: world.size("a") == 2)
    world.submit("b", 2, 2, priority="high")
    await world.until(lambda: "evicted a-base" in world.cluster.log)
    evicted = world.cluster.workload("a-base")["status"]
    await world.until(lambda: "admitted b-base" in world.cluster.log)
    world.cluster.write_back("a-base", evicted)
    await world.until(lambda: world.cluster.workload("a-base")["status"].get("admission") is None)
    assert world.pods("a") == []
    world.succeed("b")
    await world.until(lambda: world.size("a") == 2)


@pytest.mark.parametrize("quota", [4])
async def test_deactivated_job_stops_and_waits_until_it_is_active_again(world: QueueWorld) -> None:
    world.submit("a", 2, 2)
    await world.until(lambda: world.size("a") == 2)
    world.cluster.set_active("a-base", False)
    await world.until(lambda: not world.pods("a"))
    assert "Workload a-base is deactivated" in world.condition("a", "Running")[2]
    await world.until(lambda: not world.cluster.workload("a-base")["status"].get("admission"))
    world.overuse.clear()  # Kueue frees its quota at once, before the pods end
    world.cluster.set_active("a-base", True)
    await world.until(lambda: world.size("a") == 2)


async def test_job_waits_for_a_queue_that_is_missing(world: QueueWorld) -> None:
    world.cluster.queues = ("other",)
    world.submit("a", 2, 2)
    await world.until(lambda: "LocalQueue team doesn't exist" in world.condition("a", "Running")[2])
    assert world.events("a", "WaitingForQuota") == ["The job waits for quota in queue team: LocalQueue team doesn't exist"]
    world.cluster.queues = ("team",)
    await world.until(lambda: world.size("a") == 2)


@pytest.mark.parametrize("quota", [8])
async def test_sizes_that_are_allowed_are_reached_by_one_extra_each(world: QueueWorld) -> None:
    world.cluster.quota = 6
    world.submit("a", 2, 8, resizePolicy={"allowedReplicas": [2, 4, 8]})
    await world.until(lambda: world.size("a") == 4)
    assert [world.cluster.workload(f"a-extra-{n}")["spec"]["podSets"][0]["count"] for n in (1, 2)] == [2, 4]
    world.cluster.quota = 8
    await world.until(lambda: world.size("a") == 8)


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
        await world.until(lambda: any("deletionTimestamp" in pod["metadata"] for pod in world.pods("a")))
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
async def test_preempted_job_that_changes_its_queue_waits_in_the_other_one(world: QueueWorld) -> None:
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


async def test_running_job_that_is_put_into_a_queue_stops_before_it_asks_for_quota(world: QueueWorld) -> None:
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


SPOT = {"pool": "spot"}
SPOT_TAINT = {"key": "spot", "effect": "NoSchedule"}
EXTRA_WORKERS = {"nodeSelector": SPOT, "tolerations": [{**SPOT_TAINT, "operator": "Exists"}]}


def places(world: QueueWorld, name: str = "a") -> dict[str, str]:
    """The nodes that each pod of a job selects, by the Workload by whose quota it runs."""
    pods = [pod for pod in world.pods(name) if "deletionTimestamp" not in pod["metadata"]]
    selected = [(pod["metadata"]["annotations"][kueue.ANNOTATION_WORKLOAD], pod["spec"]["nodeSelector"]) for pod in pods]
    return {workload: selector["pool"] for workload, selector in selected}


@pytest.mark.parametrize("quota", [5])
async def test_workers_beyond_the_minimum_run_by_another_flavor_and_leave_with_its_quota(world: QueueWorld) -> None:
    world.cluster.quota = 3
    world.cluster.add_flavor("spot", 2, SPOT, [SPOT_TAINT])
    world.submit("a", 2, 5, scheduling={"extraWorkers": EXTRA_WORKERS})
    await world.until(lambda: world.size("a") == 4)
    assert places(world) == {"a-base": "shared", "a-extra-1": "spot", "a-extra-2": "spot"}
    assert (world.cluster.used_of(FLAVOR), world.cluster.used_of("spot")) == (2, 2), "no extra takes what is free on demand"
    assert "1 more needed" in world.condition("a", "Degraded")[2]
    tolerated = [SPOT_TAINT["key"] in [t.get("key") for t in pod["spec"]["tolerations"]] for pod in world.pods("a")]
    assert sorted(tolerated) == [False, False, True, True]

    kept = {pod["metadata"]["name"] for pod in world.pods("a") if "extra-1" not in str(pod["metadata"]["annotations"])}
    world.cluster.evict("a-extra-1", kueue.PREEMPTED, "wanted back")
    await world.until(lambda: world.size("a") == 3)
    assert world.rounds["a"][-1] == ("Evicted", 3)
    await world.until(lambda: world.size("a") == 4)
    assert kept < {pod["metadata"]["name"] for pod in world.pods("a")}, "only the worker of the evicted extra left"
    assert places(world) == {"a-base": "shared", "a-extra-2": "spot", "a-extra-3": "spot"}, "which has waited longer"

    world.change("a", scheduling={"extraWorkers": {"nodeSelector": {"pool": "none"}}})
    await world.until(lambda: world.size("a") == 2 and "no flavor matches" in world.condition("a", "Degraded")[2])
    assert places(world) == {"a-base": "shared"}
    world.change("a", scheduling={})
    await world.until(lambda: world.size("a") == 3)
    assert places(world) == {"a-base": "shared", "a-extra-1": "shared"}
    assert world.cluster.job("a")["status"]["failures"] == 0
