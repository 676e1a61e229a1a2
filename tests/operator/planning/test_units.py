from typing import Any

from elastic_pytorch_operator.model.announced_ends import Taint

from tests.operator.builders import a_job
from tests.operator.simulation import Simulation


def three_units(**fields: Any) -> Simulation:
    sizes = {"replicas": 6, "minimum": 2, "maximum": 8, "unitReplicas": 2}
    simulation = Simulation(a_job(**{**sizes, **fields}), pods_per_node=4)
    simulation.settle(10)
    assert members(simulation) == [0, 1, 2, 3, 4, 5]
    return simulation


def members(simulation: Simulation) -> list[int]:
    return [simulation.pods[name].index for name in simulation.members]


def pod_of(simulation: Simulation, index: int) -> str:
    return next(name for name in simulation.members if simulation.pods[name].index == index)


def test_lost_worker_takes_its_unit_along_and_the_others_train_on() -> None:
    simulation = three_units()
    simulation.kill_pod(pod_of(simulation, 1))
    simulation.settle(0.5)
    assert members(simulation) == [4, 5, 2, 3]
    simulation.settle(10)
    assert sorted(members(simulation)) == [0, 1, 2, 3, 4, 5]
    assert simulation.sizes == [6, 4, 6], "no round holds a torn unit"


def test_rest_of_a_torn_unit_is_told_of() -> None:
    simulation = three_units()
    simulation.agent_start_seconds = 60.0
    simulation.kill_pod(pod_of(simulation, 1))
    simulation.settle(5)
    torn = "1 pod: ready, and waits for the other workers of its unit (spec.unitReplicas)"
    assert torn in simulation.condition("Degraded")["message"]
    states = [worker["state"] for worker in simulation.status["workers"] if worker["index"] < 2]
    assert sorted(states) == ["Lost", "Ready", "Starting"]
    assert simulation.status["readyReplicas"] == 4


def test_too_few_whole_units_wait_for_their_workers() -> None:
    simulation = three_units(minimum=6, maximum=6)
    simulation.agent_start_seconds = 60.0
    simulation.kill_pod(pod_of(simulation, 3))
    simulation.settle(5)
    assert members(simulation) == []
    running = simulation.condition("Running")
    assert "4 of 6 workers are ready; training needs 6" in running["message"]


def test_spare_unit_takes_over_in_the_round_of_the_loss() -> None:
    simulation = three_units(minimum=None, maximum=None, spares=2)
    states = [worker["state"] for worker in simulation.status["workers"]]
    assert states == ["Running"] * 6 + ["Spare"] * 2
    simulation.kill_pod(pod_of(simulation, 2))
    simulation.settle(0.5)
    assert sorted(members(simulation)) == [0, 1, 4, 5, 6, 7]
    assert simulation.sizes == [6, 6]
    assert simulation.status["readySpares"] == 0, "a torn unit takes over for none"
    simulation.settle(10)
    assert simulation.status["readySpares"] == 2
    assert simulation.status["readyReplicas"] == 6


def test_scaling_down_removes_whole_units() -> None:
    simulation = three_units()
    simulation.kill_pod(pod_of(simulation, 2))
    simulation.scale(4)
    simulation.settle(20)
    assert sorted(members(simulation)) == [0, 1, 4, 5], "the torn unit goes first"
    assert len(simulation.pods) - sum(pod.ended for pod in simulation.pods.values()) == 4


def test_worker_on_a_node_that_ends_leaves_when_its_replacement_makes_its_unit_whole() -> None:
    simulation = three_units()
    node = simulation.pods[pod_of(simulation, 0)].node
    simulation.announce(node, Taint("karpenter.sh/disrupted", "", "NoSchedule"))
    simulation.settle(20)
    assert sorted(members(simulation)) == list(range(6))
    assert node not in {simulation.pods[name].node for name in simulation.members}
    assert simulation.sizes == [6, 6]


def test_new_leader_completes_units_before_it_has_heard_of_any() -> None:
    simulation = three_units()
    simulation.restart_operator()
    simulation.delete_pod(pod_of(simulation, 5), force=True)
    simulation.settle(20)
    assert sorted(members(simulation)) == list(range(6))
