"""The load generator: simulated agents train a job with the operator's own agent API, through a loss, a failure and the end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.cluster.in_memory import FakeCluster
from scale.agent import Agent, Job
from scale.training import CHECKPOINT_STEPS, START_SECONDS, STEPS_PER_SECOND, Training

from tests.operator.builders import a_manifest
from tests.scale import simulated_kubelets
from tests.scale.running_operator import running_operator
from tests.scale.simulated_kubelets import SimulatedKubelets

pytestmark = pytest.mark.process


@dataclass
class Load:
    cluster: FakeCluster
    kubelets: SimulatedKubelets

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.job("lm").get("status", {})
        return found

    async def trains(self, size: int, after_round: int) -> list[Agent]:
        """The agents, once as many as the size train in a later round, and the operator knows their step."""
        async with asyncio.timeout(120):
            while True:
                agents = self.kubelets.running("lm")
                step = self.status().get("progress", {}).get("step")
                if len(agents) == size and agents[0].round > after_round and step and step >= agents[0].job.training.first:
                    return agents
                await asyncio.sleep(0.02)


@pytest.fixture
async def load(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Load]:
    for seconds in ("CONTAINER_SECONDS", "IMPORT_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(simulated_kubelets, seconds, 0.05)
    async with running_operator() as cluster:
        kubelets = SimulatedKubelets(cluster)
        yield Load(cluster, kubelets)
        await kubelets.close()


async def test_job_trains_through_a_lost_worker_and_a_failed_one_to_its_end(load: Load) -> None:
    load.kubelets.jobs["lm"] = Job(Training(total=40, start_seconds=0.1))
    load.cluster.apply_job(a_manifest())
    first = await load.trains(3, 0)
    load.kubelets.kill(first[1].name)
    second = await load.trains(3, first[0].round)
    assert first[1].name not in {agent.name for agent in second}
    second[0].fail("ValueError", "a batch with a NaN in it")
    await load.trains(3, second[0].round)
    assert "a batch with a NaN in it" in str(load.status()["rootCause"])
    async with asyncio.timeout(120):
        while (find_condition(load.status(), "Complete") or {}).get("status") != "True":
            await asyncio.sleep(0.05)


async def test_workers_of_a_lost_node_are_silent_and_replaced(load: Load) -> None:
    load.cluster.apply_job(a_manifest())
    first = await load.trains(3, 0)
    node = first[0].node
    load.kubelets.lose_node(node)
    load.cluster.set_node_ready(node, False)
    second = await load.trains(3, first[0].round)
    assert all(agent.node != node for agent in second)


def test_training_goes_back_to_the_checkpoint_unless_the_change_is_orderly() -> None:
    training = Training()
    for worker in "ab":
        assert training.step(0.0) is None
        training.join(worker, 1, 2, orderly=False, now=0.0)
    later = START_SECONDS + (CHECKPOINT_STEPS + 9) / STEPS_PER_SECOND
    assert training.step(later) == CHECKPOINT_STEPS + 10
    training.leave("b", later)
    assert training.step(later + 60) == CHECKPOINT_STEPS + 10, "a waits for b in vain"
    training.join("a", 2, 1, orderly=False, now=later)
    assert training.step(later) is None, "what the round before came to is none of this round's"
    assert training.step(later + START_SECONDS) == training.first == CHECKPOINT_STEPS + 1
    training.join("a", 3, 1, orderly=True, now=later + START_SECONDS)
    assert training.first == CHECKPOINT_STEPS + 2
