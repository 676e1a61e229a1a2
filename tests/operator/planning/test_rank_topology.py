from collections.abc import Mapping
from typing import Any

from elastic_pytorch_operator.model.observed import NodeView

from tests.operator.builders import a_job
from tests.operator.simulation import Simulation

RACKS = {"node-0": "r1", "node-1": "r2", "node-2": "r1", "node-3": ""}


def on_racks(racks: Mapping[str, str] = RACKS, **fields: Any) -> Simulation:
    """A job that trains on nodes of two racks, and a node without one; the scheduler spreads its pods."""
    nodes = {name: NodeView(name, labels={"rack": rack} if rack else {}) for name, rack in racks.items()}
    sizes = {"replicas": 6, "minimum": 2, "maximum": 8, "scheduling": {"rankTopologyKey": "rack"}}
    simulation = Simulation(a_job(**{**sizes, **fields}), nodes=nodes)
    simulation.settle(10)
    return simulation


def members(simulation: Simulation) -> list[tuple[int, str]]:
    return [(simulation.pods[name].index, simulation.pods[name].node) for name in simulation.members]


FIRST = [(0, "node-0"), (2, "node-2"), (4, "node-0"), (1, "node-1"), (5, "node-1"), (3, "node-3")]


def test_workers_of_a_rack_are_side_by_side() -> None:
    assert members(on_racks()) == FIRST
