import asyncio

import pytest
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import MAX_RETRY_AFTER_SECONDS, ClusterError
from elastic_pytorch_operator.manifests.worker_pod import UnbuildableError
from elastic_pytorch_operator.planning.failed_writes import (
    DRY_RUN,
    PODS,
    STATUS,
    Answers,
    FailedWrite,
)
from elastic_pytorch_operator.reconcile.job_writer import MAX_WRITE_SECONDS, JobWrite, WriteKind
from elastic_pytorch_operator.reconcile.write_slots import MAX_WRITES

from tests.operator.reconcile.job_writes import QUOTA, World


async def test_all_are_waited_for_when_one_has_failed() -> None:
    world = World()
    world.errors["pod-2"] = ClusterError(409, "exists")
    world.ask(*world.pods(4))
    await asyncio.sleep(3)
    assert sorted(world.done) == ["pod-0", "pod-1", "pod-3"]
    assert world.writer.failed[PODS].words == "the API server fails: exists"
    assert world.idle


async def test_what_is_refused_once_is_not_asked_for_again_until_its_time_has_come() -> None:
    world = World()
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


async def test_quota_that_is_used_up_halfway_stops_the_rest() -> None:
    world = World()
    world.errors = dict.fromkeys(world.pods(4000)[20:], QUOTA)
    world.ask(*world.pods(4000))
    await asyncio.sleep(60)
    assert len(world.sent) < 3 * MAX_WRITES // 2, "those that were sent together"
    assert sorted(world.done) == sorted(world.pods(20))
    assert world.writer.failed[PODS].times == 1
    assert [ended.news for ended in world.ended].count(True) == 1


async def test_trouble_with_one_of_many_does_not_keep_the_others_waiting() -> None:
    world = World()
    world.errors["pod-5"] = ClusterError(500, "etcdserver: request timed out")
    world.ask(*world.pods(400))
    await asyncio.sleep(2.1)
    world.ask(*[pod for pod in world.pods(400) if pod not in world.done])
    await asyncio.sleep(20)
    assert len(world.done) == 399
    assert world.sent.count("pod-5") == 1, "it waits for its time"


async def test_pod_that_fails_again_is_tried_later_each_time() -> None:
    world = World()
    world.errors["pod-5"] = ClusterError(500, "etcdserver: request timed out")
    world.ask(*world.pods(10))
    for _ in range(3000):
        await asyncio.sleep(0.01)
        world.ask("pod-5")
    assert world.sent.count("pod-5") == 7, "after 0.2 s, 0.4 s, 0.8 s, …"
    assert world.writer.failed[PODS].lasting


async def test_refusal_is_told_before_the_trouble_beside_it() -> None:
    world = World()
    world.errors |= {
        "pod-1": ClusterError(500, "slow"),
        "pod-2": QUOTA,
        "pod-3": ClusterError(500, "slow"),
    }
    world.ask(*world.pods(4))
    await asyncio.sleep(3)
    assert world.writer.failed[PODS].words == "the API server refuses: exceeded quota"


async def test_refusals_of_pods_that_were_asked_for_together_are_told_once() -> None:
    world = World()
    world.errors = dict.fromkeys(world.pods(9)[1:], QUOTA)
    world.ask(*world.pods(1))
    await asyncio.sleep(0.5)
    for index in range(1, 9):  # one by one, and a plan reports what has failed after each
        world.writer.ask(
            [world.write("pod-0"), world.write(f"pod-{index}")],
            Answers(world.writer.failed).reported().failed,
        )
        await asyncio.sleep(0.3)
    assert len(world.sent) > 2
    assert world.writer.failed[PODS].reported
    assert world.writer.failed[PODS].times == 1
    assert [ended.news for ended in world.ended].count(True) == 1


async def test_what_has_failed_before_is_left_until_its_time_has_come() -> None:
    world = World()
    before = FailedWrite("no", world.clock() + 5, lasting=True, reported=True)
    world.ask("pod-0", failed={PODS: before, STATUS: before})
    await asyncio.sleep(1)
    assert (world.sent, world.writer.failed) == ([], {PODS: before}), (
        "what is no longer asked for is forgotten"
    )
    await asyncio.sleep(4)
    world.ask("pod-0")
    await asyncio.sleep(2)
    assert (world.sent, world.failed) == (["pod-0"], [])


@pytest.mark.parametrize(("asked_seconds", "seconds"), [(4.0, 4.0), (9e9, MAX_RETRY_AFTER_SECONDS)])
async def test_api_server_that_asks_for_a_rest_is_asked_no_more(
    asked_seconds: float, seconds: float
) -> None:
    world = World()
    world.errors["pod-0"] = ClusterError(429, "later", retry_after_seconds=asked_seconds)
    world.ask("pod-0", "pod-1")
    await asyncio.sleep(1.05)
    assert world.writer.failed[PODS].retry_at == pytest.approx(1.0 + seconds, abs=0.01)
    world.ask("status")
    await asyncio.sleep(0.1)
    assert world.sent == ["pod-0"]


async def test_fault_of_the_operators_own_is_one_failed_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()

    async def broken() -> None:
        raise KeyError("bug")

    world.writer.ask([world.write("delete-1"), JobWrite(WriteKind.PODS, PODS, "pod-0", broken)], {})
    await asyncio.sleep(3)
    assert (world.done, world.failed) == (["delete-1"], [PODS])
    assert "KeyError: 'bug'" in caplog.text


async def test_what_cannot_be_built_is_malformed_and_its_user_is_told() -> None:
    words = "Pod: the operator cannot build it: TypeError('no volume')"
    world = World()

    async def broken() -> None:
        raise UnbuildableError("Pod", TypeError("no volume"))

    world.writer.ask(
        [JobWrite(WriteKind.PODS, PODS, f"pod-{number}", broken) for number in range(3)], {}
    )
    await asyncio.sleep(3)
    [ended] = world.ended
    assert ended.error is not None
    assert (ended.error.judgement, str(ended.error)) == (Judgement.MALFORMED, words)
    assert (world.writer.failed[PODS].words, world.writer.failed[PODS].lasting) == (words, True)


async def test_write_of_many_slow_requests_is_given_up_before_the_operator_seems_to_hang() -> None:
    world = World()
    world.writer.ask(
        [
            JobWrite(WriteKind.DRY_RUN, DRY_RUN, DRY_RUN, lambda: asyncio.sleep(300)),
            world.write("pod-0"),
        ],
        {},
    )
    await asyncio.sleep(MAX_WRITE_SECONDS - 1)
    assert (world.slots.longest_write_seconds, world.sent) == (
        pytest.approx(MAX_WRITE_SECONDS - 1),
        [],
    )
    await asyncio.sleep(2.5)
    assert (world.failed, world.done) == ([DRY_RUN], ["pod-0"])
    assert MAX_WRITE_SECONDS < 60, "ElasticPyTorchQueueStuck"
