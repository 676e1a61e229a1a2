"""Jobs without minReplicas: the group is whole, or it waits."""

from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.api.conditions import find_condition

from tests.operator.builders import a_job
from tests.operator.simulation import Simulation

FIXED: dict[str, Any] = {"minimum": None, "maximum": None}


def running_condition(simulation: Simulation) -> dict[str, Any]:
    return dict(find_condition(simulation.job.status, "Running"))


def test_group_waits_for_all_workers() -> None:
    simulation = Simulation(a_job(replicas=3, **FIXED), pods_per_node=1)
    simulation.nodes["node-2"] = replace(simulation.nodes["node-2"], unschedulable=True)
    simulation.settle(60)
    assert simulation.declared == []
    assert "2 of 3 workers are ready; training needs 3" in running_condition(simulation)["message"]
    simulation.nodes["node-2"] = replace(simulation.nodes["node-2"], unschedulable=False)
    simulation.settle(10)
    assert [round_.size for round_ in simulation.declared] == [3]


def test_group_that_has_lost_a_worker_stops_until_it_is_whole_again() -> None:
    simulation = Simulation(a_job(replicas=3, **FIXED))
    simulation.settle(10)
    simulation.kill_pod(simulation.declared[-1].workers[1])
    simulation.reconcile()
    assert running_condition(simulation)["reason"] == "WaitingForWorkers"
    assert simulation.job.status["state"] == "Pending"
    simulation.settle(10)
    assert [round_.size for round_ in simulation.declared] == [3, 0, 3]
    assert simulation.job.status["failures"] == 0
