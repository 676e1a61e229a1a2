"""With `spec.prepare` a node is checked each time before its worker starts its set-up, and at no other time."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.observed import AgentState, NodeView
from elastic_pytorch_operator.planning.memory import Plan

from tests.operator.builders import a_job
from tests.operator.planning.preflight.test_preflight import CheckedNodes

pytestmark = pytest.mark.simulation

SET_UP_SECONDS = 8.0


@dataclass
class PreparedNodes(CheckedNodes):
    """A job whose agents check their nodes, and then set up their scripts, before they are ready.

    Attributes:
        in_process: processes go from one group to the next.
        begun: when the set-up of each worker that holds a process has begun.
        told: workers that are told to start their set-up.
    """

    checked_in: AgentState = AgentState.UNCHECKED
    in_process: bool = True
    begun: dict[str, float] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def reconcile(self) -> Plan:
        todo = super().reconcile()
        if todo.checks is not None:
            self.told = {worker for worker, request in todo.checks.items() if request is None}
        return todo

    def live(self) -> None:
        super().live()
        for name, agent in list(self.agents.items()):
            if agent.state is AgentState.FAILED or (agent.state is AgentState.READY and agent.round and not self.in_process):
                self.begun.pop(name, None)
            if agent.state in (AgentState.READY, AgentState.UNCHECKED, AgentState.PREPARING):
                self._set_up(name)

    def _set_up(self, name: str) -> None:
        agent = self.agents[name]
        if name in self.told and agent.state is AgentState.UNCHECKED:
            assert name not in self.begun
            self.begun[name] = self.now
        since = self.begun.get(name)
        state = AgentState.UNCHECKED if since is None else AgentState.PREPARING
        if since is not None and self.now >= since + SET_UP_SECONDS:
            state = AgentState.READY
        if state is not agent.state:
            ready_at = self.now if state is AgentState.READY else None
            number = agent.round if state is AgentState.READY else 0
            keeps = state is AgentState.READY and self.in_process
            agent = replace(agent, state=state, round=number, state_since=self.now, keeps_processes=keeps)
            self.agents[name] = replace(agent, set_up_since=since, set_up_until=ready_at)

    def checked(self, since: int = 0) -> list[set[str]]:
        """The workers of each check."""
        return [{worker for pair in pairs for worker in pair} for pairs in self.asked[since:]]


def simulate(nodes: int = 5, **fields: Any) -> PreparedNodes:
    job = a_job(**{"replicas": 3, "minimum": 2, "preflight": {"seconds": 20}, "prepare": {}, **fields})
    return PreparedNodes(job, {f"node-{n}": NodeView(f"node-{n}") for n in range(nodes)}, 1)


def test_nodes_are_checked_while_no_script_holds_their_devices() -> None:
    simulation = simulate(replicas=4)
    simulation.settle(3)
    assert {worker["state"] for worker in simulation.job.status["workers"]} == {"Checking"}
    assert simulation.begun == {}
    simulation.settle(5)
    assert {worker["state"] for worker in simulation.job.status["workers"]} == {"Preparing"}
    simulation.settle(10)
    assert simulation.sizes == [4]
    [first] = [event for event in simulation.events if event.reason == "FirstRound"]
    assert first.note.endswith("4 of 4 wanted workers are ready; the last set-up (spec.prepare) took 8.0 s")
    assert [len(workers) for workers in simulation.checked()] == [4]
    assert simulation.last.recheck_at is None or simulation.last.recheck_at > simulation.now
    assert simulation.reconcile().checks is None


@pytest.mark.parametrize("fault", ["slow", "broken", "mute", "cut_off"])
def test_worker_of_a_faulty_node_never_starts_its_set_up(fault: str) -> None:
    simulation = simulate()
    if fault == "slow":
        simulation.slow["node-1"] = 3.0
    else:
        getattr(simulation, fault).add("node-1")
    simulation.settle(120)
    assert "w1-2" not in simulation.begun
    assert [entry["node"] for entry in simulation.job.status["leftOutNodes"]] == ["node-1"]
    assert simulation.where(simulation.members) == {"node-0", "node-2", "node-3"}


@pytest.mark.parametrize("spares", [0, 1])
def test_after_a_loss_only_the_replacement_is_checked(spares: int) -> None:
    simulation = simulate(nodes=6, spares=spares, minimum=2, maximum=None)
    simulation.settle(40)
    assert simulation.sizes[-1] == 3
    rounds, checks, there = len(simulation.declared), len(simulation.asked), set(simulation.pods)
    simulation.kill_pod(simulation.members[1])
    simulation.settle(40)
    assert all(not workers & there for workers in simulation.checked(checks))
    assert len(simulation.checked(checks)) == 1
    assert simulation.sizes[rounds:] == ([3] if spares else [2, 3]), "no empty round for a check of all"


def test_process_that_is_set_up_again_is_checked_before() -> None:
    simulation = simulate()
    simulation.settle(40)
    failed, checks, rounds = simulation.members[1], len(simulation.asked), len(simulation.declared)
    for name, agent in simulation.agents.items():
        simulation.agents[name] = replace(agent, keeps_processes=True)
    simulation.fail_worker(failed, "CUDA error: an illegal memory access was encountered")
    simulation.settle(1)
    assert simulation.sizes[rounds:] == [2]
    simulation.settle(40)
    assert simulation.checked(checks) == [{failed}]
    assert simulation.sizes[rounds:] == [2, 3]
    assert failed in simulation.members


def test_members_below_the_minimum_that_keep_their_processes_are_not_checked() -> None:
    simulation = simulate(minimum=3)
    simulation.settle(40)
    checks, members = len(simulation.asked), set(simulation.members)
    simulation.kill_pod(simulation.members[1])
    simulation.settle(40)
    assert simulation.sizes == [3, 0, 3]
    [newcomers] = simulation.checked(checks)
    assert not newcomers & members
    [interruption] = simulation.job.status["recentInterruptions"]
    assert interruption["slowestPhase"] == "prepare"
    assert float(interruption["phaseSeconds"]["prepare"]) == pytest.approx(SET_UP_SECONDS, abs=1.5)


def test_plain_scripts_that_stop_are_checked_before_they_start_again() -> None:
    simulation = simulate(minimum=3)
    simulation.in_process = False
    simulation.settle(40)
    checks = len(simulation.asked)
    simulation.kill_pod(simulation.members[1])
    simulation.settle(60)
    assert simulation.sizes == [3, 0, 3]
    assert set().union(*simulation.checked(checks)) == set(simulation.members)


def test_a_new_leader_checks_those_that_wait_only() -> None:
    simulation = simulate(spares=1, minimum=None, maximum=None)
    simulation.settle(40)
    assert simulation.job.status["readySpares"] == 1
    checks, rounds = len(simulation.asked), len(simulation.declared)
    simulation.restart_operator()
    simulation.told = set()
    simulation.settle(20)
    assert (len(simulation.asked), len(simulation.declared)) == (checks, rounds)


def test_without_preflight_those_that_wait_for_a_check_start() -> None:
    simulation = simulate()
    simulation.settle(3)
    simulation.job = replace(simulation.job, preflight=None, generation=2)
    simulation.settle(20)
    assert simulation.sizes == [3]


def test_a_suspended_job_starts_no_set_up() -> None:
    simulation = simulate()
    simulation.settle(3)
    simulation.job = replace(simulation.job, suspend=True, wanted=0, generation=2)
    simulation.settle(20)
    assert simulation.told == set()
    assert simulation.begun == {}
