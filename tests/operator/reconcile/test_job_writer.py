"""Which writes of a job are sent when, and what is known of them afterwards."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.manifests.building import UnbuildableError
from elastic_pytorch_operator.planning.failed_writes import (
    CLAIMS,
    DRY_RUN,
    JOB,
    POD_GROUP,
    PODS,
    SERVICE,
    STATUS,
    FailedWrite,
    mark_reported,
)
from elastic_pytorch_operator.reconcile.job_writer import MAX_WRITE_SECONDS, Ended, JobWrite, JobWriter, Lane
from elastic_pytorch_operator.reconcile.write_shares import MAX_SHARE
from elastic_pytorch_operator.reconcile.write_slots import Sender, WriteSlots

from tests.operator.builders import KEY
from tests.operator.virtual_time import run_in_virtual_time

WRITE_SECONDS = 1.0
QUOTA = ClusterError(403, "exceeded quota")
LANES = {
    "service": (Lane.SERVICE, SERVICE),
    "try": (Lane.DRY_RUN, DRY_RUN),
    "claim": (Lane.CLAIMS, CLAIMS),
    "group": (Lane.POD_GROUP, POD_GROUP),
    "status": (Lane.STATUS, STATUS),
    "workload": (Lane.WORKLOADS, ""),
    "pod": (Lane.PODS, PODS),
    "delete": (Lane.DELETES, ""),
    "job": (Lane.JOB, JOB),
    "event": (Lane.EVENTS, ""),
}


class World:
    """A writer, and an API server that takes a second for each write."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.clock = loop.time
        self.slots = WriteSlots(clock=loop.time)
        self.writer = self.another()
        self.ended: list[Ended] = []
        self.errors: dict[str, ClusterError] = {}
        self.sent: list[str] = []
        self.done: list[str] = []

    def another(self) -> JobWriter:
        return JobWriter(KEY, "uid", self.slots, lambda writer, ended: self.ended.append(ended), self.clock)

    def write(self, id_: str, **fields: Any) -> JobWrite:
        lane, key = LANES[id_.partition("-")[0]]

        async def send() -> None:
            self.sent.append(id_)
            await asyncio.sleep(WRITE_SECONDS)
            if id_ in self.errors:
                raise self.errors[id_]
            self.done.append(id_)

        return JobWrite(lane, key or id_, id_, send, **fields)

    def ask(self, *ids: str, failed: dict[str, FailedWrite] | None = None) -> None:
        """A plan asks for these writes."""
        self.writer.ask([self.write(id_) for id_ in ids], self.writer.failed if failed is None else failed)

    def pods(self, count: int) -> list[str]:
        return [f"pod-{index}" for index in range(count)]

    @property
    def failed(self) -> Sequence[str]:
        return sorted(self.writer.failed)


def play(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World()
        await story(world)
        await world.slots.close()

    run_in_virtual_time(main())


def test_planning_goes_on_while_the_status_is_written() -> None:
    async def story(world: World) -> None:
        world.ask("status")
        await asyncio.sleep(0.5)
        world.ask("pod-1", "delete-7")
        await asyncio.sleep(0.1)
        assert (world.sent, world.done) == (["status", "pod-1", "delete-7"], [])

    play(story)


def test_what_is_on_its_way_is_not_sent_again() -> None:
    async def story(world: World) -> None:
        world.ask("pod-1", "delete-7", "status", "service")
        await asyncio.sleep(0.5)
        world.ask("pod-1", "delete-7", "status", "service")
        await asyncio.sleep(5)
        assert sorted(world.sent) == ["delete-7", "pod-1", "service", "status"]
        assert world.writer.idle

    play(story)


def test_what_the_newest_plan_no_longer_asks_for_is_not_sent() -> None:
    async def story(world: World) -> None:
        world.ask(*world.pods(100))
        await asyncio.sleep(0.5)
        world.ask("pod-1")
        await asyncio.sleep(5)
        assert world.sent == ["pod-0", "pod-1"]

    play(story)


def test_deletion_that_was_asked_for_is_sent_although_the_next_plan_takes_the_pod_for_deleted() -> None:
    async def story(world: World) -> None:
        deletions = [f"delete-{number}" for number in range(100)]
        world.ask(*deletions)
        await asyncio.sleep(0.5)
        assert len(world.sent) < 100
        assert world.writer.pods_being_deleted == set(deletions)
        world.ask("status")
        await asyncio.sleep(20)
        assert sorted(world.sent) == sorted([*deletions, "status"])
        assert world.writer.pods_being_deleted == set()

    play(story)


def test_nothing_is_deleted_for_a_job_that_is_gone() -> None:
    async def story(world: World) -> None:
        world.ask(*(f"delete-{number}" for number in range(100)))
        await asyncio.sleep(0.5)
        world.writer.drop()
        await asyncio.sleep(20)
        assert len(world.sent) < 100

    play(story)


def test_of_the_status_the_newest_is_written() -> None:
    async def story(world: World) -> None:
        for other in (world.another(), world.another()):  # take all slots
            other.ask([world.write(f"delete-{index}") for index in range(100)], {})
        said: list[str] = []
        for text in ("old", "newest"):

            async def send(text: str = text) -> None:
                said.append(text)

            world.writer.ask([JobWrite(Lane.STATUS, STATUS, STATUS, send)], {})
        await asyncio.sleep(10)
        assert said == ["newest"]

    play(story)


def test_each_kind_of_write_has_a_lane_of_its_own_in_the_order_of_sending() -> None:
    assert [lane for lane, _ in LANES.values()] == list(Lane)


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
def test_what_is_sent_at_once_and_in_which_order(asked: list[str], sent_at_once: list[str]) -> None:
    async def story(world: World) -> None:
        world.ask(*asked)
        await asyncio.sleep(0.5)
        assert world.sent == sent_at_once

    play(story)


@pytest.mark.parametrize("refused", ["claim-a", "pod-0", "group", "workload-a"])
def test_quota_is_asked_for_and_given_back_whatever_is_refused_beside_it(refused: str) -> None:
    async def story(world: World) -> None:
        world.errors[refused] = QUOTA
        for _ in range(2):
            world.ask("claim-a", "group", "pod-0", "pod-1", "workload-a", "workload-b")
            await asyncio.sleep(2)
        assert "workload-b" in world.done

    play(story)


def test_first_of_many_pods_is_created_alone_and_the_others_together() -> None:
    async def story(world: World) -> None:
        world.ask(*world.pods(20))
        await asyncio.sleep(0.5)
        assert world.sent == ["pod-0"]
        await asyncio.sleep(1.0)
        assert world.sent == world.pods(20)

    play(story)


@pytest.mark.parametrize("kind", ["delete", "workload"])
def test_job_is_planned_again_once_when_all_writes_of_a_kind_are_done(kind: str) -> None:
    async def story(world: World) -> None:
        world.ask(*(f"{kind}-{number}" for number in range(1900)))
        await asyncio.sleep(0.5)
        assert len(world.sent) == MAX_SHARE
        await asyncio.sleep(100)
        assert len(world.done) == 1900
        assert [ended.rest for ended in world.ended].count(True) == 1

    play(story)


def test_all_are_waited_for_when_one_has_failed() -> None:
    async def story(world: World) -> None:
        world.errors["pod-2"] = ClusterError(409, "exists")
        world.ask(*world.pods(4))
        await asyncio.sleep(3)
        assert sorted(world.done) == ["pod-0", "pod-1", "pod-3"]
        assert world.writer.failed[PODS].words == "the API server fails: exists"
        assert world.writer.idle

    play(story)


def test_what_is_refused_once_is_not_asked_for_again_until_its_time_has_come() -> None:
    async def story(world: World) -> None:
        world.errors["pod-0"] = QUOTA
        world.ask(*world.pods(3), "delete-7")
        await asyncio.sleep(3)
        assert world.sent == ["pod-0", "delete-7"], "another write is another matter"
        world.ask(*world.pods(3))
        await asyncio.sleep(3)
        assert (world.sent, world.failed) == (["pod-0", "delete-7"], [PODS])
        del world.errors["pod-0"]
        await asyncio.sleep(6)
        world.ask(*world.pods(3))
        await asyncio.sleep(3)
        assert (world.sent[2:], world.failed) == (world.pods(3), [])

    play(story)


def test_quota_that_is_used_up_halfway_stops_the_rest() -> None:
    async def story(world: World) -> None:
        world.errors = dict.fromkeys(world.pods(4000)[20:], QUOTA)
        world.ask(*world.pods(4000))
        await asyncio.sleep(60)
        assert len(world.sent) < 3 * MAX_SHARE, "those that were sent together"
        assert sorted(world.done) == sorted(world.pods(20))
        assert world.writer.failed[PODS].times == 1
        assert [ended.news for ended in world.ended].count(True) == 1

    play(story)


def test_trouble_with_one_of_many_does_not_keep_the_others_waiting() -> None:
    async def story(world: World) -> None:
        world.errors["pod-5"] = ClusterError(500, "etcdserver: request timed out")
        world.ask(*world.pods(400))
        await asyncio.sleep(2.1)
        world.ask(*[pod for pod in world.pods(400) if pod not in world.done])
        await asyncio.sleep(20)
        assert len(world.done) == 399
        assert world.sent.count("pod-5") == 1, "it waits for its time"

    play(story)


def test_pod_that_fails_again_is_tried_later_each_time() -> None:
    async def story(world: World) -> None:
        world.errors["pod-5"] = ClusterError(500, "etcdserver: request timed out")
        world.ask(*world.pods(10))
        for _ in range(3000):
            await asyncio.sleep(0.01)
            world.ask("pod-5")
        assert world.sent.count("pod-5") == 7, "after 0.2 s, 0.4 s, 0.8 s, …"
        assert world.writer.failed[PODS].lasting

    play(story)


def test_refusal_is_told_before_the_trouble_beside_it() -> None:
    async def story(world: World) -> None:
        world.errors |= {"pod-1": ClusterError(500, "slow"), "pod-2": QUOTA, "pod-3": ClusterError(500, "slow")}
        world.ask(*world.pods(4))
        await asyncio.sleep(3)
        assert world.writer.failed[PODS].words == "the API server refuses: exceeded quota"
        assert world.writer.failed[PODS].times == 1

    play(story)


def test_refusals_of_pods_that_were_asked_for_together_are_told_once() -> None:
    async def story(world: World) -> None:
        world.errors = dict.fromkeys(world.pods(9)[1:], QUOTA)
        world.ask(*world.pods(1))
        await asyncio.sleep(0.5)
        for index in range(1, 9):  # one by one, and a plan reports what has failed after each
            world.writer.ask([world.write("pod-0"), world.write(f"pod-{index}")], mark_reported(world.writer.failed))
            await asyncio.sleep(0.3)
        assert len(world.sent) > 2
        assert world.writer.failed[PODS].reported
        assert world.writer.failed[PODS].times == 1
        assert [ended.news for ended in world.ended].count(True) == 1

    play(story)


def test_what_has_failed_before_is_left_until_its_time_has_come() -> None:
    async def story(world: World) -> None:
        before = FailedWrite("no", world.clock() + 5, lasting=True, reported=True)
        world.ask("pod-0", failed={PODS: before, STATUS: before})
        await asyncio.sleep(1)
        assert (world.sent, world.writer.failed) == ([], {PODS: before}), "what is no longer asked for is forgotten"
        await asyncio.sleep(4)
        world.ask("pod-0")
        await asyncio.sleep(2)
        assert (world.sent, world.failed) == (["pod-0"], [])

    play(story)


@pytest.mark.parametrize("before", ["claim-data", "try"])
def test_pods_wait_for_what_comes_before_them(before: str) -> None:
    async def story(world: World) -> None:
        world.ask("service", before, "pod-0", "status")
        await asyncio.sleep(0.5)
        assert sorted(world.sent) == sorted(["service", before, "status"])
        await asyncio.sleep(1.0)
        assert world.sent[-1] == "pod-0"

    play(story)


def test_no_pod_is_created_without_its_claims() -> None:
    async def story(world: World) -> None:
        world.errors["claim-a"] = QUOTA
        world.ask("claim-a", "claim-b", "pod-0", "status")
        await asyncio.sleep(3)
        assert sorted(world.sent) == ["claim-a", "status"]
        world.ask("claim-a", "claim-b", "pod-0")
        await asyncio.sleep(3)
        assert sorted(world.sent) == ["claim-a", "status"]

    play(story)


@pytest.mark.parametrize(
    ("error", "created"),
    [(QUOTA, True), (ClusterError(422, 'Pod "x" is invalid: spec.y: Required value'), False)],
)
def test_pod_is_not_created_if_a_dry_run_has_found_it_malformed(error: ClusterError, created: bool) -> None:
    async def story(world: World) -> None:
        world.errors["try"] = error
        world.ask("try", "pod-0")
        await asyncio.sleep(3)
        assert ("pod-0" in world.sent) is created
        assert world.failed == [DRY_RUN]

    play(story)


def test_api_server_that_asks_for_a_rest_is_asked_no_more() -> None:
    async def story(world: World) -> None:
        world.errors["pod-0"] = ClusterError(429, "later", retry_after_seconds=4.0)
        world.ask("pod-0", "pod-1")
        await asyncio.sleep(1.05)
        assert world.writer.failed[PODS].retry_at == pytest.approx(5.0, abs=0.01)
        world.ask("status")
        await asyncio.sleep(0.1)
        assert world.sent == ["pod-0"]

    play(story)


def test_what_follows_a_success_is_done_before_its_end_is_told() -> None:
    async def story(world: World) -> None:
        told: list[int] = []
        world.writer.ask([world.write("status", then=lambda: told.append(len(world.ended)))], {})
        await asyncio.sleep(2)
        assert told == [0]
        world.errors["status"] = QUOTA
        world.writer.ask([world.write("status", then=lambda: told.append(len(world.ended)))], {})
        await asyncio.sleep(2)
        assert told == [0]

    play(story)


def test_events_come_last_and_outlive_the_plan() -> None:
    async def story(world: World) -> None:
        world.ask("event-1", "event-2", "pod-0", "pod-1")
        await asyncio.sleep(0.5)
        world.writer.drop()
        await asyncio.sleep(5)
        assert world.sent == ["pod-0", "event-1", "event-2"]
        assert world.writer.idle

    play(story)


def test_fault_of_the_operators_own_is_one_failed_write(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        async def broken() -> None:
            raise KeyError("bug")

        world.writer.ask([world.write("delete-1"), JobWrite(Lane.PODS, PODS, "pod-0", broken)], {})
        await asyncio.sleep(3)
        assert (world.done, world.failed) == (["delete-1"], [PODS])

    play(story)
    assert "KeyError: 'bug'" in caplog.text


def test_what_cannot_be_built_is_malformed_and_its_user_is_told() -> None:
    words = "Pod: the operator cannot build it: TypeError('no volume')"

    async def story(world: World) -> None:
        async def broken() -> None:
            raise UnbuildableError("Pod", TypeError("no volume"))

        world.writer.ask([JobWrite(Lane.PODS, PODS, f"pod-{number}", broken) for number in range(3)], {})
        await asyncio.sleep(3)
        [ended] = world.ended
        assert ended.error is not None
        assert (ended.error.judgement, str(ended.error)) == (Judgement.MALFORMED, words)
        assert (world.writer.failed[PODS].words, world.writer.failed[PODS].lasting) == (words, True)

    play(story)


def test_write_of_many_slow_requests_is_given_up_before_it_looks_as_if_the_operator_hangs() -> None:
    async def story(world: World) -> None:
        world.writer.ask([JobWrite(Lane.DRY_RUN, DRY_RUN, DRY_RUN, lambda: asyncio.sleep(300)), world.write("pod-0")], {})
        await asyncio.sleep(MAX_WRITE_SECONDS - 1)
        assert (world.slots.longest_write_seconds, world.sent) == (pytest.approx(MAX_WRITE_SECONDS - 1), [])
        await asyncio.sleep(2.5)
        assert (world.failed, world.done) == ([DRY_RUN], ["pod-0"])
        assert MAX_WRITE_SECONDS < 60, "ElasticPyTorchQueueStuck"

    play(story)


class Full(WriteSlots):
    """Has no slot free; knows what was offered: whether it was urgent."""

    def offer(self, sender: Sender) -> None:
        self.urgent = sender.has_urgent()


@pytest.mark.parametrize(
    ("failed", "urgent"),
    [
        ({}, True),
        ({PODS: FailedWrite("no", 0.0, times=2)}, True),
        ({PODS: FailedWrite("no", 0.0, times=3, lasting=True)}, False),
        ({STATUS: FailedWrite("no", 0.0, times=3, lasting=True)}, True),
    ],
)
def test_what_has_failed_for_longer_is_no_longer_urgent(failed: dict[str, FailedWrite], urgent: bool) -> None:
    async def story(world: World) -> None:
        slots = Full()
        JobWriter(KEY, "uid", slots, lambda writer, ended: None, world.clock).ask([world.write("pod-0")], failed)
        assert slots.urgent is urgent

    play(story)
