from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.planning.memory import recall

from tests.operator.builders import TIME, a_manifest, fields_of, parse_job
from tests.operator.simulation import Simulation, running
from tests.operator.stock_simulation import StockSimulation
from tests.situations import situations

ETCD = {"backend": "etcd-v2", "endpoint": "etcd:2379"}

World = Simulation | StockSimulation


def respec(world: World, **spec: Any) -> None:
    job = parse_job(a_manifest(**spec))
    world.job = replace(job, status=world.status, generation=world.job.generation + 1)


def suspend(world: World, **spec: Any) -> None:
    respec(world, suspend=True, **spec)
    world.settle(10)
    assert world.status["state"] == "Suspended"
    assert not world.pods


def hand_over(before: World, after: World, *, restarts: bool) -> None:
    """Has the same operator go on with a job, or one that has just started."""
    after.job, after.now = before.job, before.now
    after.memory = recall(before.job, before.now, TIME) if restarts else before.memory


@situations("restarts", {"the same operator": False, "a new operator": True})
@pytest.mark.parametrize(
    "stock", [{"backend": "c10d"}, ETCD], ids=lambda rendezvous: rendezvous["backend"]
)
def test_group_forms_again_with_another_backend_and_back(
    stock: dict[str, str], restarts: bool
) -> None:
    own, other = running(), StockSimulation(parse_job(a_manifest()))
    first = own.job.status["round"]
    suspend(own)
    hand_over(own, other, restarts=restarts)
    respec(other, rendezvous=stock)
    other.settle(20)
    status = other.status
    assert fields_of(status, "state", "worldSize", "failures") == ("Running", 3, 0)
    assert status["round"] > first
    assert bool(other.of("store")) is (stock["backend"] == "c10d")

    suspend(other, rendezvous=stock)
    back = Simulation(own.job)
    hand_over(other, back, restarts=restarts)
    back.round = None if restarts else own.round
    respec(back)
    back.settle(20)
    assert fields_of(back.job.status, "state", "worldSize", "failures") == ("Running", 3, 0)
    assert back.job.status["round"] > other.status["round"]


@pytest.mark.parametrize("spec", [{"injectAgent": False}, {"rendezvous": {"port": 29600}}])
def test_group_forms_again_with_other_pods(spec: dict[str, Any]) -> None:
    world = running()
    first = world.status["round"]
    suspend(world)
    respec(world, **spec)
    world.settle(20)
    assert fields_of(world.status, "state", "worldSize") == ("Running", 3)
    assert world.status["round"] > first
