"""Workers that their group has hung for: they move once, if there is another node."""

from dataclasses import replace

from elastic_pytorch_operator.model.failure import FailureRecord
from elastic_pytorch_operator.model.observed import NodeView, Observed, Progress
from elastic_pytorch_operator.model.places import Place, PlaceKind
from elastic_pytorch_operator.planning.failures.device_faults import AVOID_SECONDS
from elastic_pytorch_operator.planning.failures.hang_moves import NO_HANG_MOVES, HangMoves, displaced_by_hangs, move_from_hang
from elastic_pytorch_operator.planning.failures.progress_deadline import Stall

from tests.operator.builders import NOW, a_job, a_pod, a_round, an_agent, observed
from tests.operator.simulation import Simulation

JOB = a_job(progressDeadlineSeconds=60)
STALL = Stall(1, NOW - 2, NOW, FailureRecord("w1", 1, None, "", "no step was finished", NOW), movable=True)
MOVED = HangMoves({"node-1": NOW}, frozenset({"w1"}), 7)
REDUCE = Place(PlaceKind.COLLECTIVE, "all_reduce")
LOADS = Place(PlaceKind.DATA_LOADER, frame="train.py:41 load")


def seen(step: int = 7, *, nodes: int = 3) -> Observed:
    agents = [an_agent(f"w{i}", rank=i, progress=Progress(step=step)) for i in range(2)]
    there = {f"node-{n}": NodeView(f"node-{n}") for n in (1, 0, 2)[:nodes]}
    return observed([a_pod(0), a_pod(1, node="node-1")], agents, round=a_round(0, 1), nodes=there)


def test_worker_moves_when_its_group_is_restarted() -> None:
    assert move_from_hang(NO_HANG_MOVES, JOB, seen(), None) == NO_HANG_MOVES
    assert move_from_hang(NO_HANG_MOVES, JOB, seen(), STALL) == MOVED
    assert move_from_hang(MOVED, JOB, seen(), STALL) == MOVED
    assert displaced_by_hangs(MOVED, seen()) == frozenset(), "its group is restarted first"
    assert displaced_by_hangs(MOVED, replace(seen(), round=a_round(0))) == {"w1"}


def test_worker_stays_without_another_node_or_a_reason() -> None:
    assert move_from_hang(NO_HANG_MOVES, JOB, seen(nodes=1), STALL) == NO_HANG_MOVES
    assert move_from_hang(NO_HANG_MOVES, JOB, seen(), replace(STALL, movable=False)) == NO_HANG_MOVES


def test_hang_at_the_same_step_is_the_scripts_and_a_later_one_is_another() -> None:
    known = HangMoves({"node-0": NOW - 60}, frozenset(), 7)
    assert move_from_hang(known, JOB, seen(7), STALL) == known
    assert move_from_hang(known, JOB, seen(8), STALL) == HangMoves({"node-0": NOW - 60, "node-1": NOW}, frozenset({"w1"}), 8)


def test_nodes_are_forgotten_after_half_an_hour_and_workers_with_their_pods() -> None:
    known = HangMoves({"node-1": NOW - AVOID_SECONDS - 1, "node-2": NOW - AVOID_SECONDS}, frozenset({"w9"}), 7)
    assert move_from_hang(known, JOB, seen(), None) == HangMoves({"node-2": NOW - AVOID_SECONDS}, frozenset(), 7)


# In the course of a job.


def running_at(step: int, **spec: object) -> Simulation:
    simulation = Simulation(a_job(replicas=3, progressDeadlineSeconds=20, **spec))
    simulation.settle(10)
    report(simulation, step)
    return simulation


def report(simulation: Simulation, step: int) -> None:
    """All members have come to a step."""
    for worker in simulation.members:
        agent = simulation.agents[worker]
        simulation.agents[worker] = replace(agent, progress=Progress(step=step), progressed_at=simulation.now)
    simulation.settle(0.25)


def hang(simulation: Simulation, index: int = 2) -> str:
    """The group hangs for the worker of an index, until the group is restarted. Returns the worker."""
    declared = len(simulation.declared)
    [culprit] = [worker for worker in simulation.members if simulation.pods[worker].index == index]
    for _ in range(200):
        simulation.settle(0.25)
        if simulation.last.dump_stacks:
            for worker in simulation.members:
                places = (LOADS if worker == culprit else REDUCE,)
                simulation.agents[worker] = replace(simulation.agents[worker], places=places, placed_at=simulation.now)
        if len(simulation.declared) > declared:
            return culprit
    raise AssertionError("no new round")


def test_culprit_is_named_and_moves_and_the_others_go_on() -> None:
    simulation = running_at(5)
    node = {worker: simulation.pods[worker].node for worker in simulation.members}
    culprit = hang(simulation)
    told = simulation.declared[-1]
    assert told.reason == "ProgressStalled"
    assert "rank 2 is in its data loader (train.py:41 load), the others wait in all_reduce" in told.cause
    assert "its pod is replaced, on another node if one has room" in told.cause
    assert culprit not in simulation.members
    simulation.settle(20)
    assert [round_.size for round_ in simulation.declared] == [3, 2, 3]
    assert culprit not in simulation.pods
    assert all(simulation.pods[worker].node != node[culprit] for worker in simulation.members if worker not in node)
    cause = simulation.job.status["rootCause"]
    assert (cause["worker"], cause["rank"], cause["node"]) == (culprit, 2, node[culprit])


def test_second_hang_at_the_step_restarts_the_group_where_it_is() -> None:
    simulation = running_at(5)
    hang(simulation)
    simulation.settle(10)
    report(simulation, 5)
    culprit = hang(simulation)
    assert culprit in simulation.members
    assert "its pod is replaced" not in simulation.declared[-1].cause
    assert "rank 2 is in its data loader" in simulation.declared[-1].cause


def test_group_of_the_minimum_waits_for_the_replacement() -> None:
    simulation = running_at(5, minimum=3)
    culprit = hang(simulation)
    assert (simulation.declared[-1].size, simulation.declared[-1].reason) == (0, "ProgressStalled")
    simulation.settle(20)
    assert simulation.declared[-1].size == 3
    assert culprit not in simulation.members


def test_job_on_one_node_restarts_there() -> None:
    simulation = Simulation(
        a_job(replicas=3, progressDeadlineSeconds=20), nodes={"node-0": NodeView("node-0")}, pods_per_node=3
    )
    simulation.settle(10)
    report(simulation, 5)
    culprit = hang(simulation)
    assert culprit in simulation.members
    assert simulation.declared[-1].size == 3
    assert "rank 2 is in its data loader" in simulation.declared[-1].cause
