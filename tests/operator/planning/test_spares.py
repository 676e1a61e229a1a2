from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.api.conditions import is_true
from elastic_pytorch_operator.model.announced_ends import Taint
from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.planning.queueing.quota import Target

from tests.operator.builders import a_job
from tests.operator.simulation import Simulation, running


def spares_of(simulation: Simulation) -> list[str]:
    """The pods that are up and in no round."""
    return sorted(
        name
        for name, pod in simulation.pods.items()
        if pod.started and name not in simulation.members
    )


def fixed() -> Simulation:
    """Two workers of a job of a fixed size, and a spare, all of them ready."""
    simulation = running(replicas=2, minimum=None, maximum=None, spares=1)
    assert len(spares_of(simulation)) == 1
    return simulation


def status_of(simulation: Simulation) -> tuple[Any, ...]:
    status = simulation.status
    states = [worker["state"] for worker in status["workers"]]
    return (
        status["state"],
        status["replicas"],
        status["readyReplicas"],
        status["readySpares"],
        states,
    )


def test_spare_waits_beside_a_whole_group_and_is_told_of() -> None:
    simulation = fixed()
    assert simulation.sizes == [2]
    assert status_of(simulation) == ("Running", 2, 2, 1, ["Running", "Running", "Spare"])
    assert not is_true(simulation.status, "Degraded")
    assert simulation.reconcile().actions == ()


@pytest.mark.parametrize("loss", ["deleted", "killed", "deleted with no grace", "node removed"])
def test_spare_takes_over_in_the_one_round_that_follows_a_loss(loss: str) -> None:
    simulation = fixed()
    first, second = simulation.members
    (spare,) = spares_of(simulation)
    match loss:
        case "deleted":
            simulation.delete_pod(second)
        case "killed":
            simulation.kill_pod(second)
        case "deleted with no grace":
            simulation.delete_pod(second, force=True)
        case "node removed":
            node = simulation.pods[second].node
            simulation.hung_nodes.add(node)
            simulation.nodes[node] = NodeView(node, ready=False, removed=True)
    simulation.settle(30)
    assert [round_.number for round_ in simulation.declared] == [1, 2]
    assert simulation.declared[-1].reason in ("WorkerLost", "WorkerLeaving")
    assert sorted(simulation.members) == sorted([first, spare])
    assert len(spares_of(simulation)) == 1
    assert status_of(simulation)[:4] == ("Running", 2, 2, 1)


def test_lost_workers_beyond_the_spares_cost_a_wait() -> None:
    simulation = fixed()
    for name in simulation.members:
        simulation.kill_pod(name)
    simulation.settle(30)
    assert simulation.sizes == [2, 0, 2]
    assert len(spares_of(simulation)) == 1


def test_allowed_sizes_are_filled_by_a_spare() -> None:
    simulation = running(
        replicas=4, minimum=2, maximum=4, spares=1, resizePolicy={"allowedReplicas": [2, 4]}
    )
    simulation.kill_pod(simulation.members[3])
    simulation.settle(10)
    assert {round_.size for round_ in simulation.declared} == {4}
    for name in simulation.members[:2]:
        simulation.kill_pod(name)
    simulation.step_seconds = 0.1
    simulation.settle(1)
    assert simulation.declared[-1].size == 2, "three are left"
    ready = [worker["state"] for worker in simulation.status["workers"]]
    assert "Spare" not in ready, "the third waits for the fourth: it is wanted"
    assert simulation.status["readySpares"] == 0


def test_growth_takes_the_spare_at_once() -> None:
    simulation = running(replicas=2, minimum=1, maximum=4, spares=1)
    (spare,) = spares_of(simulation)
    simulation.scale(3)
    simulation.reconcile()
    assert spare in simulation.members
    assert simulation.declared[-1].size == 3
    simulation.settle(10)
    assert len(spares_of(simulation)) == 1


def test_failed_worker_trains_again_and_the_spare_waits() -> None:
    simulation = fixed()
    before = simulation.members
    simulation.fail_worker(before[1], "ValueError: boom")
    simulation.settle(10)
    assert simulation.declared[-1].reason == "WorkerFailed"
    assert sorted(simulation.members) == sorted(before)


def test_scale_down_keeps_the_spare_and_a_member_leaves() -> None:
    simulation = running(replicas=3, minimum=1, maximum=4, spares=1)
    (spare,), before = spares_of(simulation), simulation.members
    simulation.scale(2)
    simulation.settle(10)
    assert (sorted(simulation.members), spares_of(simulation)) == (sorted(before[:2]), [spare])
    assert simulation.declared[-1].reason == "ScaledDown"


def test_number_of_spares_changes_without_a_round() -> None:
    simulation = fixed()
    for spares in (3, 0, 1):
        simulation.job = replace(
            simulation.job, spares=spares, generation=simulation.job.generation + 1
        )
        simulation.settle(10)
        assert len(spares_of(simulation)) == spares
    assert len(simulation.declared) == 1


@pytest.mark.parametrize("loss", ["deleted", "killed", "silent", "node ends"])
def test_lost_spare_is_replaced_and_the_group_stands(loss: str) -> None:
    simulation = fixed()
    simulation.nodes |= {"node-9": NodeView("node-9")}
    simulation.listening_since = simulation.last_heard_at = simulation.now
    (spare,) = spares_of(simulation)
    match loss:
        case "deleted":
            simulation.delete_pod(spare)
        case "killed":
            simulation.kill_pod(spare)
        case "silent":
            simulation.hung_nodes.add(simulation.pods[spare].node)
        case "node ends":
            simulation.announce(
                simulation.pods[spare].node, Taint("karpenter.sh/disrupted", "", "NoSchedule")
            )
    simulation.settle(60)
    simulation.hung_nodes.clear()
    simulation.settle(5)
    assert len(simulation.declared) == 1
    (other,) = spares_of(simulation)
    assert other != spare
    assert not is_true(simulation.status, "Degraded")


def test_member_on_a_node_that_ends_leaves_at_once_for_the_spare() -> None:
    simulation = fixed()
    (spare,) = spares_of(simulation)
    simulation.announce(
        simulation.pods[simulation.members[0]].node,
        Taint("karpenter.sh/disrupted", "", "NoSchedule"),
    )
    simulation.reconcile()
    assert spare in simulation.members
    assert simulation.sizes == [2, 2]


def test_restart_of_the_operator_disturbs_neither_the_group_nor_the_spare() -> None:
    simulation = fixed()
    pods = set(simulation.pods)
    simulation.restart_operator()
    simulation.settle(20)
    assert (len(simulation.declared), set(simulation.pods)) == (1, pods)


def test_loss_while_the_leader_changes_is_filled_by_the_spare() -> None:
    simulation = fixed()
    simulation.kill_pod(simulation.members[0])
    simulation.take_over({})
    simulation.settle(40)
    assert simulation.round is not None
    assert {round_.size for round_ in simulation.declared} == {2}
    assert len(spares_of(simulation)) == 1


def test_first_round_does_not_wait_for_spares() -> None:
    simulation = Simulation(
        a_job(replicas=2, minimum=None, maximum=None, spares=1), pods_per_node=1
    )
    simulation.nodes = {f"node-{n}": NodeView(f"node-{n}") for n in range(2)}
    simulation.settle(10)
    assert simulation.sizes == [2]
    assert status_of(simulation) == ("Running", 2, 2, 0, ["Running", "Running", "Starting"])
    assert not is_true(simulation.status, "Degraded")


def test_spares_are_beyond_the_workers_that_may_run() -> None:
    assert Target(2, spares=3).pods == 5
    assert Target(0, spares=3).pods == 0
