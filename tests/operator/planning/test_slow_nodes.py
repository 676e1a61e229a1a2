"""`resizePolicy.replaceStragglers` in the course of a job: what a slow node, or a slow script, costs it. Whole days are simulations."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.model.actions import CreatePod, RecordEvent
from elastic_pytorch_operator.model.announced_ends import Taint
from elastic_pytorch_operator.model.observed import AgentState, NodeView

from tests.operator.builders import a_job
from tests.operator.simulation import Simulation

WINDOW_SECONDS = 5.0
HOUR, DAY = 3600.0, 86400.0
POLICY = {"replaceStragglers": {"slowdownPercent": 50, "afterSeconds": 60}}
SPOT = Taint("aws-node-termination-handler/spot-itn", "event-1", "NoSchedule")


@dataclass
class UnevenSimulation(Simulation):
    """A job whose ranks report their work, some of which takes longer.

    Attributes:
        slow_nodes: how many times as long work takes there.
        slow_ranks: the same by rank, wherever it is.
    """

    slow_nodes: dict[str, float] = field(default_factory=dict)
    slow_ranks: dict[int, float] = field(default_factory=dict)
    told: list[RecordEvent] = field(default_factory=list)

    def live(self) -> None:
        super().live()
        for name, agent in self.agents.items():
            if agent.state is AgentState.RUNNING and name in self.members:
                factor = self.slow_nodes.get(self.pods[name].node, 1.0) * self.slow_ranks.get(agent.rank, 1.0)
                progress = replace(
                    agent.progress,
                    work_windows=int((self.now - agent.state_since) // WINDOW_SECONDS),
                    work_seconds=(0.1 * factor,),
                    step_seconds=0.25,
                )
                self.agents[name] = replace(agent, progress=progress)

    def reconcile(self) -> Any:
        todo = super().reconcile()
        self.told += [action for action in todo.actions if isinstance(action, RecordEvent)]
        return todo

    @property
    def nodes_of_members(self) -> list[str]:
        return sorted(self.pods[name].node for name in self.members)

    @property
    def resizing(self) -> Mapping[str, Any]:
        return find_condition(self.job.status, "Resizing") or {}

    def reasons(self, *reasons: str) -> list[str]:
        return [event.reason for event in self.told if event.reason in reasons]


def training(nodes: int = 4, *, pods_per_node: int = 1, step_seconds: float = 0.25, **fields: Any) -> UnevenSimulation:
    """A job that trains on some of the nodes; from then on, a step of the simulation takes some seconds."""
    job = a_job(**{"resizePolicy": POLICY, **fields})
    there = {f"node-{n}": NodeView(f"node-{n}") for n in range(nodes)}
    simulation = UnevenSimulation(job, there, pods_per_node)
    simulation.settle(30)
    simulation.step_seconds = step_seconds
    assert simulation.round is not None
    assert simulation.round.size == job.wanted
    return simulation


def test_worker_of_a_slow_node_is_replaced_in_one_orderly_round_and_no_failure_counts() -> None:
    simulation = training()
    first, worker = simulation.declared[-1], simulation.members[1]
    simulation.slow_nodes["node-1"] = 1.8
    simulation.settle(70)
    assert len(simulation.declared) == 1, "not slow for long enough"
    while simulation.resizing["reason"] != "SlowWorker":
        simulation.settle(0.25)
    text = (
        "leaves node node-1, where it works 1.8 times as long in a step as the group's median rank, as soon as its replacement"
    )
    assert simulation.resizing["status"] == "True"
    assert simulation.resizing["message"] == f"{worker} {text} is ready"
    assert [event.note for event in simulation.told if event.reason == "SlowWorker"] == [f"{worker} {text} is ready"]
    assert simulation.round is first, "it trains until its replacement is ready"
    simulation.settle(20)
    [_, second] = simulation.declared
    assert (second.reason, second.size, second.orderly_since) == ("WorkerLeaving", 3, first.number)
    assert simulation.nodes_of_members == ["node-0", "node-2", "node-3"]
    assert worker not in simulation.pods
    assert (simulation.job.status["failures"], simulation.job.status["totalFailures"]) == (0, 0)
    assert simulation.resizing["reason"] == "AtWantedSize"


def test_without_the_field_nothing_is_replaced() -> None:
    simulation = training(resizePolicy={})
    simulation.slow_nodes["node-1"] = 9.0
    simulation.settle(HOUR)
    assert len(simulation.declared) == 1
    assert simulation.reasons("Straggler") == ["Straggler"]


def test_ready_spare_takes_the_place_at_once_unless_it_is_on_the_same_node() -> None:
    simulation = training(4, spares=1)
    simulation.slow_nodes["node-1"] = 2.0
    while len(simulation.declared) == 1:
        simulation.settle(0.25)
    assert simulation.nodes_of_members == ["node-0", "node-2", "node-3"]
    simulation = training(2, pods_per_node=4, spares=1)
    assert sorted(pod.node for pod in simulation.pods.values()) == ["node-0", "node-0", "node-1", "node-1"]
    assert simulation.nodes_of_members == ["node-0", "node-0", "node-1"]
    simulation.slow_nodes["node-1"] = 2.0
    simulation.settle(150)
    assert simulation.nodes_of_members == ["node-0"] * 3


def test_unit_trains_on_when_one_of_its_workers_is_replaced() -> None:
    simulation = training(5, replicas=4, minimum=2, maximum=4, unitReplicas=2)
    simulation.slow_nodes["node-2"] = 2.0
    simulation.settle(150)
    assert [round_.size for round_ in simulation.declared] == [4, 4]
    assert simulation.nodes_of_members == ["node-0", "node-1", "node-3", "node-4"]


@pytest.mark.parametrize(("nodes", "made"), [(3, 4), (1, 3)], ids=["the others are full", "there is no other node"])
def test_slow_worker_stays_where_no_other_node_takes_its_replacement(nodes: int, made: int) -> None:
    simulation = training(nodes, pods_per_node=3 // nodes, step_seconds=5.0)
    if nodes == 1:
        simulation.slow_ranks[1] = 2.0
    else:
        simulation.slow_nodes["node-1"] = 2.0
    simulation.settle(HOUR / 2)
    assert len(simulation.declared) == 1
    assert simulation.made == made, "one try at most"
    assert len(simulation.pods) == 3
    assert (simulation.resizing["status"], simulation.resizing["reason"]) == ("False", "StragglerKept")
    assert "is slow, and stays on node node-" in simulation.resizing["message"]
    simulation.settle(2 * HOUR)
    assert simulation.made <= made + 2, "a try an hour"
    assert len(simulation.declared) == 1


def test_worker_that_recovers_while_its_replacement_is_prepared_stays() -> None:
    simulation = training()
    simulation.agent_start_seconds = 300.0
    simulation.slow_nodes["node-1"] = 2.0
    while not simulation.reasons("SlowWorker"):
        simulation.settle(0.25)
    simulation.slow_nodes.clear()
    simulation.settle(60)
    assert (len(simulation.declared), len(simulation.pods)) == (1, 3)
    [note] = [event.note for event in simulation.told if event.reason == "StragglerKept"]
    assert note.endswith("stays on node node-1: it is no longer slow")
    assert simulation.resizing["reason"] == "AtWantedSize"


def test_replacement_that_never_becomes_ready_is_given_up() -> None:
    simulation = training()
    simulation.agent_start_seconds = DAY
    simulation.slow_nodes["node-1"] = 2.0
    simulation.settle(HOUR)
    assert (len(simulation.declared), len(simulation.pods)) == (1, 3)
    [note] = [event.note for event in simulation.told if event.reason == "StragglerKept"]
    assert note.endswith("its replacement has not become ready in time")


def test_new_leader_goes_on_with_a_replacement() -> None:
    simulation = training()
    simulation.slow_nodes["node-1"] = 2.0
    while not simulation.reasons("SlowWorker"):
        simulation.settle(0.25)
    made = simulation.made
    simulation.restart_operator()
    simulation.settle(30)
    assert simulation.nodes_of_members == ["node-0", "node-2", "node-3"]
    assert (simulation.made, simulation.reasons("SlowWorker")) == (made, ["SlowWorker"])


def test_leader_that_hears_the_slow_worker_last_replaces_it_in_one_round() -> None:
    simulation = training()
    first, worker = simulation.declared[-1], simulation.members[1]
    simulation.slow_nodes["node-1"] = 2.0
    while not simulation.reasons("SlowWorker"):
        simulation.settle(0.25)
    simulation.take_over({worker: simulation.now + 5.0})
    simulation.settle(40)
    assert simulation.nodes_of_members == ["node-0", "node-2", "node-3"]
    assert [round_.reason for round_ in simulation.declared] == [first.reason, "WorkerLeaving"]


def test_node_that_ends_comes_first() -> None:
    simulation = training(5)
    simulation.slow_nodes["node-1"] = 2.0
    while not simulation.reasons("SlowWorker"):
        simulation.settle(0.25)
    simulation.announce("node-2", SPOT)
    simulation.settle(20)
    assert len(simulation.declared) == 2
    assert simulation.nodes_of_members == ["node-0", "node-3", "node-4"]


def test_later_pods_keep_away_from_a_node_that_a_slow_worker_has_left() -> None:
    simulation = training()
    simulation.slow_nodes["node-1"] = 2.0
    simulation.settle(120)
    assert "node-1" not in simulation.nodes_of_members
    simulation.kill_pod(simulation.members[0])
    simulation.reconcile()
    [made] = [action for action in simulation.last.actions if isinstance(action, CreatePod)]
    assert "node-1" in made.avoid


# Whole days.


def a_day(simulation: UnevenSimulation) -> int:
    """How many rounds a day makes."""
    before = len(simulation.declared)
    simulation.settle(DAY)
    return len(simulation.declared) - before


@pytest.mark.simulation
def test_slow_node_loses_its_worker_once_a_day() -> None:
    simulation = training(step_seconds=30.0)
    simulation.slow_nodes["node-1"] = 1.8
    assert a_day(simulation) == 1
    assert simulation.nodes_of_members == ["node-0", "node-2", "node-3"]


@pytest.mark.simulation
@pytest.mark.parametrize("spares", [0, 1])
def test_script_that_gives_a_rank_more_work_has_it_moved_twice_at_most(spares: int) -> None:
    simulation = training(7, replicas=4, maximum=4, spares=spares, step_seconds=30.0)
    simulation.slow_ranks[3] = 2.0
    assert a_day(simulation) == 1
    assert simulation.reasons("StragglerKept") == ["StragglerKept"]
    assert simulation.resizing["reason"] == "StragglerKept"
    assert "the script probably gives it more work than others, and it is not replaced again" in simulation.resizing["message"]
    assert a_day(simulation) == 0, "while it is slow, it stays"


@pytest.mark.simulation
@pytest.mark.parametrize("slow", [(3, 4, 7, 8, 9), (3, 4, 5, 6, 7)], ids=["the next nodes are fast", "the next nodes are slow"])
def test_job_on_a_fleet_of_which_half_is_slow_comes_to_rest(slow: tuple[int, ...]) -> None:
    simulation = training(10, replicas=5, maximum=5, step_seconds=30.0)
    simulation.slow_nodes |= {f"node-{n}": 2.0 for n in slow}
    simulation.settle(HOUR)
    assert len(simulation.declared) - 1 <= 2
    assert a_day(simulation) == 0
