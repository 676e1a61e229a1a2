from typing import Any

import pytest
from elastic_pytorch_operator.model.observed import NodeView

from tests.operator.builders import a_job
from tests.operator.simulation import Simulation

pytestmark = pytest.mark.simulation


def on_nodes(count: int, *, policy: dict[str, Any] | None = None, **job: Any) -> Simulation:
    """A job on nodes with room for one worker each."""
    simulation = Simulation(
        a_job(minimum=2, maximum=8, resizePolicy=policy or {}, **job), pods_per_node=1
    )
    simulation.nodes = {}
    for _ in range(count):
        add_node(simulation)
    simulation.settle(60)
    return simulation


def add_node(simulation: Simulation) -> None:
    name = f"node-{len(simulation.nodes)}"
    simulation.nodes[name] = NodeView(name)


def pods(simulation: Simulation) -> tuple[int, int]:
    """How many pods have a node, and how many wait for one."""
    placed = sum(bool(pod.node) for pod in simulation.pods.values())
    return placed, len(simulation.pods) - placed


@pytest.mark.parametrize(
    ("replicas", "room", "placed", "pending", "size"),
    [(8, 5, 5, 3, 4), (7, 5, 4, 0, 4), (7, 3, 3, 1, 2), (4, 5, 4, 0, 4), (3, 5, 2, 0, 2)],
)
def test_no_more_pods_wait_than_the_allowed_sizes_have_use_for(
    replicas: int, room: int, placed: int, pending: int, size: int
) -> None:
    simulation = on_nodes(room, replicas=replicas, policy={"allowedReplicas": [2, 4, 8]})
    assert pods(simulation) == (placed, pending)
    assert simulation.sizes == [size]


def test_group_grows_to_the_next_allowed_size_when_there_is_room_for_it() -> None:
    simulation = on_nodes(5, replicas=8, policy={"allowedReplicas": [2, 4, 8]})
    for _ in range(3):
        add_node(simulation)
        simulation.settle(20)
    assert simulation.sizes == [4, 8]
    assert simulation.made == 8, "no pod is created twice"


def test_nodes_that_come_soon_one_after_the_other_change_the_group_once() -> None:
    simulation = on_nodes(2, replicas=5, policy={"settleSeconds": 30})
    for _ in range(3):
        add_node(simulation)
        simulation.settle(10)
    simulation.settle(40)
    assert simulation.sizes == [2, 5]


def test_nodes_that_come_within_the_pause_change_the_group_once_after_it() -> None:
    simulation = on_nodes(2, replicas=8, policy={"minSecondsBetweenGrowths": 150})
    for _ in range(6):
        add_node(simulation)
        simulation.settle(15)
    assert simulation.sizes == [2]
    simulation.settle(150)
    assert simulation.sizes == [2, 8]


def test_job_that_has_lost_nodes_grows_again_when_others_come() -> None:
    simulation = on_nodes(4, replicas=4)
    for name in ("node-2", "node-3"):
        simulation.delete_pod(
            next(pod.name for pod in simulation.pods.values() if pod.node == name)
        )
        del simulation.nodes[name]
        simulation.settle(10)
    assert (simulation.declared[-1].size, pods(simulation)) == (2, (2, 2))
    add_node(simulation)
    simulation.nodes["node-9"] = NodeView("node-9")
    simulation.settle(20)
    assert simulation.sizes == [4, 3, 2, 4]
