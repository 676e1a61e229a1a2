"""How often the heartbeats of one job may have something written."""

import asyncio
from collections import Counter
from typing import Any

from elastic_pytorch_operator.agents.http_api import LINES_PER_SECOND
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import is_true
from elastic_pytorch_operator.reconcile.job_writer import (
    EVENT_BURST,
    EVENTS_PER_SECOND,
    STATUS_BURST,
    STATUSES_PER_SECOND,
    JobWrite,
    WriteKind,
)

from tests.operator.builders import a_manifest
from tests.operator.faulty_cluster import FaultyCluster
from tests.operator.reconcile.job_writes import World
from tests.operator.running_controller import RunningController, running_status

SECONDS = 20.0


async def test_statuses_are_written_a_few_at_once_and_then_at_a_rate() -> None:
    world = World()
    began, sent = world.clock(), []

    async def send() -> None:
        sent.append(world.clock())

    while world.clock() < began + SECONDS:
        world.writer.ask([JobWrite(WriteKind.STATUS, "status", "status", send)], {})
        held_until = world.writer.status_at
        await asyncio.sleep(0.05)
    assert len(sent) <= STATUS_BURST + STATUSES_PER_SECOND * SECONDS
    assert sent[-1] > began + SECONDS - 2 / STATUSES_PER_SECOND
    assert held_until is not None
    await asyncio.sleep(held_until - world.clock())
    world.writer.ask([JobWrite(WriteKind.STATUS, "status", "status", send)], {})
    assert world.writer.status_at is None, "it may be written now"


async def test_events_of_one_reason_keep_out_no_other_one() -> None:
    world = World()
    sent: Counter[str] = Counter()
    counts: list[int] = []

    def event(number: int, reason: str) -> JobWrite:
        async def send(count: int) -> None:
            sent[reason] += 1
            counts.append(count)

        return JobWrite(WriteKind.EVENTS, reason, f"{reason} {number}", send)

    for number in range(200):
        world.writer.ask([event(number, "Often")], {})
        await asyncio.sleep(0.05)
    world.writer.add_event(event(0, "Rare"))
    await asyncio.sleep(1)
    assert sent == {"Often": EVENT_BURST, "Rare": 1}
    await asyncio.sleep(1 / EVENTS_PER_SECOND)
    world.writer.add_event(event(200, "Often"))
    await asyncio.sleep(1)
    assert sum(counts) == 202, "one event tells how many were not sent"
    assert counts == [1] * len(counts[:-1]) + [201 - EVENT_BURST]


TURNS = int(SECONDS * LINES_PER_SECOND)


async def let_agents_change_their_minds(
    world: RunningController[FaultyCluster],
    pods: list[tuple[str, str]],
    turns: range = range(TURNS),
) -> None:
    """Each says in turn that it is slow, or that its saves fail, and that it does not."""
    declared = world.round_of("lm")
    assert declared is not None
    for turn in turns:
        for number, (name, uid) in enumerate(pods):
            slow = (turn // 3) % 2 and not number
            progress: dict[str, Any] = {
                "step": 5,
                "firstStep": 1,
                "workWindows": turn + 2,
                "stepSeconds": 3,
                "checkpoints": turn,
            }
            progress |= {"workSeconds": [3 if slow else 1], "failedSaves": 3 * (turn % 2)}
            place = {"round": declared.number, "rank": declared.ranks[name], "worldSize": 3}
            world.hear(name, uid, {"state": "running", **place, "progress": progress})
        await asyncio.sleep(1 / LINES_PER_SECOND)


async def test_heartbeats_have_no_more_written_than_a_job_may_and_the_last_one_counts() -> None:
    world = RunningController(FaultyCluster(nodes=4))
    async with world.runs():
        world.cluster.apply_job(a_manifest(replicas=3, minimum=1, maximum=3))
        while len(world.cluster.pods()) < 3:
            await asyncio.sleep(0.1)
        pods = [(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in world.cluster.pods()]
        for number, (name, uid) in enumerate(pods):
            world.cluster.set_pod_status("default", name, running_status(f"10.0.0.{number + 1}"))
            world.hear(name, uid, {"state": "ready", "round": 0})
        while world.round_of("lm") is None:
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        world.cluster.calls.clear()
        world.cluster.events.clear()
        await let_agents_change_their_minds(world, pods)
        quiet = len(world.cluster.events)
        await asyncio.sleep(1 / EVENTS_PER_SECOND)
        await let_agents_change_their_minds(world, pods, range(TURNS, 2 * TURNS))
        [series] = [
            e["series"]
            for e in list(world.cluster.events)[quiet:]
            if e["reason"] == "Straggler" and "series" in e
        ][:1]
        assert series["count"] > 1, "what was not sent is counted"
        await asyncio.sleep(5)
        seconds = 2 * SECONDS + 1 / EVENTS_PER_SECOND + 5
        assert (
            world.cluster.calls.count("patch ElasticPyTorchJob/status")
            <= STATUS_BURST + STATUSES_PER_SECOND * seconds
        )
        reasons = Counter(event["reason"] for event in world.cluster.events)
        assert reasons["Straggler"] > 1
        assert max(reasons.values()) <= EVENT_BURST + EVENTS_PER_SECOND * seconds + 1
        assert is_true(world.cluster.job("lm")["status"], names.DEGRADED), (
            "the last heartbeats said that saves fail"
        )
