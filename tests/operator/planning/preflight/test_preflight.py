"""Nodes are checked before a group forms and after a loss; those that fail twice are left out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.model.actions import RecordEvent
from elastic_pytorch_operator.model.check import CheckReport, CheckRequest
from elastic_pytorch_operator.model.observed import AgentState, NodeView
from elastic_pytorch_operator.planning.memory import Plan
from elastic_pytorch_operator.planning.preflight.preflight import LEFT_OUT_SECONDS, REPORT_MARGIN_SECONDS

from tests.operator.builders import a_job
from tests.operator.simulation import Simulation

pytestmark = pytest.mark.simulation

CHECK_SECONDS = 2.0
PREFLIGHT = {"preflight": {"seconds": 20}}


@dataclass
class CheckedNodes(Simulation):
    """A job whose agents check their nodes.

    Attributes:
        slow: how many times as long as others a node takes, by name.
        broken: nodes whose devices fail.
        cut_off: nodes that reach no other.
        bad_links: pairs of nodes whose all-reduces fail with each other.
        mute: nodes whose agents report no result.
        asked: all checks that were asked for: who with whom.
        number: of the last of them.
        checked_in: the state in which agents check their nodes.
    """

    slow: dict[str, float] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    cut_off: set[str] = field(default_factory=set)
    bad_links: set[frozenset[str]] = field(default_factory=set)
    mute: set[str] = field(default_factory=set)
    requests: dict[str, tuple[float, CheckRequest]] = field(default_factory=dict)
    asked: list[list[list[str]]] = field(default_factory=list)
    events: list[RecordEvent] = field(default_factory=list)
    number: int = 0
    checked_in: AgentState = AgentState.READY

    def reconcile(self) -> Plan:
        todo = super().reconcile()
        self.events += [action for action in todo.actions if isinstance(action, RecordEvent)]
        if todo.checks is not None:
            wanted = {worker: request for worker, request in todo.checks.items() if request is not None}
            if any(request.number != self.number for request in wanted.values()):
                self.number = next(request.number for request in wanted.values())
                self.requests = {worker: (self.now, request) for worker, request in wanted.items()}
                self.asked.append(self._pairs())
            else:  # an agent makes each check once
                self.requests = {worker: asked for worker, asked in self.requests.items() if worker in wanted}
        return todo

    def live(self) -> None:
        super().live()
        for worker, (since, request) in list(self.requests.items()):
            if worker in self.agents and self.now >= since + CHECK_SECONDS and self.pods[worker].node not in self.mute:
                assert self.agents[worker].state is self.checked_in
                del self.requests[worker]
                self.agents[worker] = replace(self.agents[worker], check=self._measure(worker, request))

    def restart_operator(self) -> None:
        super().restart_operator()
        self.requests, self.number = {}, 0

    def _pairs(self) -> list[list[str]]:
        pairs: dict[str, list[str]] = {}
        for worker, (_, request) in self.requests.items():
            pairs.setdefault(request.store_address, []).append(worker)
        for pair in pairs.values():
            requests = [self.requests[worker][1] for worker in pair]
            assert [request.first_rank for request in requests] == list(range(len(pair)))
            assert {request.world_size for request in requests} == {len(pair)}
        return list(pairs.values())

    def _measure(self, worker: str, request: CheckRequest) -> CheckReport:
        pair = next(pair for pair in self.asked[-1] if worker in pair)
        nodes = [self.pods[each].node for each in pair if each in self.pods]
        here = self.pods[worker].node
        if here in self.broken:
            return CheckReport(request.number, None, 0.1, "matrix products: no device")
        apart = bool(self.cut_off & set(nodes)) or any(link <= set(nodes) for link in self.bad_links)
        if len(pair) > 1 and apart:
            return CheckReport(request.number, 1.0, None, "all-reduces: timed out")
        return CheckReport(request.number, self.slow.get(here, 1.0), 0.1 * max(self.slow.get(node, 1.0) for node in nodes))

    @property
    def sizes(self) -> list[int]:
        return [round_.size for round_ in self.declared]

    def where(self, workers: Sequence[str]) -> set[str]:
        return {self.pods[worker].node for worker in workers}

    def running(self) -> tuple[str, str]:
        condition = find_condition(self.job.status, "Running")
        assert condition is not None
        return condition["reason"], condition["message"]


def simulate(nodes: int = 4, pods_per_node: int = 1, **fields: Any) -> CheckedNodes:
    job = a_job(**{"replicas": 3, "minimum": 2, **PREFLIGHT, **fields})
    return CheckedNodes(job, {f"node-{n}": NodeView(f"node-{n}") for n in range(nodes)}, pods_per_node)


def test_without_the_field_nothing_is_checked() -> None:
    simulation = simulate(preflight=None)
    simulation.settle(10)
    assert simulation.asked == []
    assert simulation.sizes == [3]


def test_healthy_nodes_pass_before_the_first_round() -> None:
    simulation = simulate(replicas=4)
    simulation.settle(3)
    assert simulation.running() == (
        "CheckingNodes",
        "the nodes of 4 workers are checked before training starts (spec.preflight)",
    )
    assert {worker["state"] for worker in simulation.job.status["workers"]} == {"Checking"}
    simulation.settle(10)
    assert [len(pair) for pair in simulation.asked[0]] == [2, 2]
    assert len(simulation.asked) == 1
    assert simulation.sizes == [4]
    assert simulation.last.recheck_at is None or simulation.last.recheck_at > simulation.now
    assert simulation.reconcile().checks is None


@pytest.mark.parametrize("fault", ["slow", "broken", "mute", "cut_off"])
def test_a_faulty_node_is_left_out_and_its_worker_is_replaced_on_another(fault: str) -> None:
    simulation = simulate(replicas=3)
    if fault == "slow":
        simulation.slow["node-1"] = 3.0
    else:
        getattr(simulation, fault).add("node-1")
    simulation.settle(120)
    assert simulation.where(simulation.members) == {"node-0", "node-2", "node-3"}
    [event] = [event for event in simulation.events if event.reason == "NodeLeftOut"]
    assert event.warning
    assert event.note.startswith("Node node-1 is left out for 30 minutes: w1-2 ")
    assert event.note.endswith(", twice")
    [entry] = simulation.job.status["leftOutNodes"]
    assert (entry["node"], entry["worker"]) == ("node-1", "w1-2")
    assert simulation.sizes[0] in (2, 3)
    assert simulation.sizes[-1] == 3
    assert 0 not in simulation.sizes, "a group that trains is not stopped for a check of newcomers"


def test_the_partner_of_a_faulty_node_is_cleared() -> None:
    simulation = simulate(replicas=4, nodes=5, maximum=4)
    simulation.cut_off = {"node-1"}
    simulation.settle(120)
    first, second = simulation.asked[:2]
    assert first == [["w0-1", "w1-2"], ["w2-3", "w3-4"]]
    assert second == [["w2-3", "w0-1"], ["w3-4", "w1-2"]], "each suspect has a partner that has passed"
    assert len(simulation.asked) == 3, "the replacement is checked, too"
    assert simulation.where(simulation.members) == {"node-0", "node-2", "node-3", "node-4"}


@pytest.mark.parametrize("nodes", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("faulty", [0, 1, 2])
def test_one_node_that_reaches_no_other_is_found_among_any_number(nodes: int, faulty: int) -> None:
    simulation = simulate(replicas=nodes, minimum=2, nodes=nodes, maximum=nodes)
    simulation.cut_off = {f"node-{faulty}"}
    simulation.settle(120)
    assert [entry["node"] for entry in simulation.job.status["leftOutNodes"]] == [f"node-{faulty}"]
    assert len(simulation.members) == nodes - 1
    assert "NoNodeLeftOut" not in {event.reason for event in simulation.events}


def test_two_faulty_nodes_in_different_pairs_are_found() -> None:
    simulation = simulate(replicas=4, minimum=2, nodes=4, maximum=4)
    simulation.cut_off = {"node-0", "node-3"}
    simulation.settle(120)
    assert {entry["node"] for entry in simulation.job.status["leftOutNodes"]} == simulation.cut_off
    assert simulation.where(simulation.members) == {"node-1", "node-2"}


def test_where_no_two_reach_each_other_the_checks_end() -> None:
    simulation = simulate(replicas=6, minimum=2, nodes=6, maximum=6)
    simulation.cut_off = set(simulation.nodes)
    simulation.settle(60)
    assert simulation.sizes == [6]
    assert len(simulation.asked) == 6
    [event] = [event for event in simulation.events if event.reason == "NoNodeLeftOut"]
    assert event.note.count("all-reduces: timed out") == 3
    assert event.note.endswith("; and 3 more")


def test_a_bad_link_is_no_nodes_fault() -> None:
    simulation = simulate(replicas=4)
    simulation.bad_links = {frozenset({"node-0", "node-1"})}
    simulation.settle(60)
    assert simulation.sizes == [4]
    assert "leftOutNodes" not in simulation.job.status


def test_a_bad_link_between_two_of_three_is_no_nodes_fault() -> None:
    simulation = simulate(replicas=3, minimum=2, nodes=3, maximum=3)
    simulation.bad_links = {frozenset({"node-0", "node-1"})}
    simulation.settle(60)
    assert simulation.sizes[-1] == 3
    assert "leftOutNodes" not in simulation.job.status


def test_if_neither_of_two_can_be_blamed_both_train() -> None:
    simulation = simulate(replicas=2, minimum=2, nodes=2, maximum=2)
    simulation.bad_links = {frozenset({"node-0", "node-1"})}
    simulation.settle(60)
    assert simulation.asked == [[["w0-1", "w1-2"]], [["w0-1"], ["w1-2"]]]
    assert simulation.sizes == [2]
    [event] = [event for event in simulation.events if event.reason == "NoNodeLeftOut"]
    assert event.note == (
        "Node checks were inconclusive, so no node is left out: "
        "w0-1 has failed its check: all-reduces: timed out; w1-2 has failed its check: all-reduces: timed out"
    )


def test_where_no_other_node_is_left_the_job_waits_and_says_why() -> None:
    simulation = simulate(replicas=2, minimum=2, nodes=2, maximum=2)
    simulation.broken = {"node-1"}
    simulation.settle(120)
    simulation.step_seconds = 5.0
    assert simulation.sizes == []
    reason, message = simulation.running()
    assert reason == "WaitingForWorkers"
    assert "node node-1 is left out: w1-2 has failed its check: matrix products: no device, twice" in message
    made = simulation.made
    simulation.settle(300)
    assert simulation.made == made, "no pod is created and deleted again and again"
    simulation.broken = set()
    simulation.settle(LEFT_OUT_SECONDS)
    assert simulation.sizes == [2], "it is tried again after a while"
    assert "leftOutNodes" not in simulation.job.status


@pytest.mark.parametrize("how", ["killed", "failed"])
def test_after_a_loss_the_others_are_checked_too(how: str) -> None:
    simulation = simulate(replicas=3, nodes=5)
    simulation.settle(15)
    assert simulation.sizes == [3]
    if how == "killed":
        simulation.kill_pod(simulation.members[1])
    else:
        simulation.fail_worker(simulation.members[1], "CUDA error: an illegal memory access was encountered")
    simulation.slow = {simulation.pods[simulation.members[0]].node: 5.0}
    simulation.settle(120)
    assert simulation.sizes[:2] == [3, 0]
    assert simulation.declared[1].cause.endswith("; the nodes are checked first")
    assert simulation.sizes[-1] == 3
    assert not simulation.where(simulation.members) & simulation.slow.keys()
    [interruption] = simulation.job.status["recentInterruptions"][:1]
    assert interruption["cause"] == {"killed": "WorkerLost", "failed": "WorkerFailed"}[how]


def test_planned_changes_check_newcomers_only() -> None:
    simulation = simulate(replicas=2, nodes=5)
    simulation.settle(15)
    simulation.scale(4)
    simulation.settle(15)
    assert simulation.asked[1:] == [[["w2-3", "w3-4"]]]
    simulation.scale(3)
    simulation.settle(15)
    assert simulation.sizes == [2, 4, 3]
    assert len(simulation.asked) == 2


def test_a_newcomer_is_compared_to_the_nodes_that_train() -> None:
    simulation = simulate(replicas=2, nodes=4)
    simulation.slow = {"node-2": 4.0}
    simulation.settle(15)
    simulation.scale(3)
    simulation.settle(60)
    assert simulation.asked[1:3] == [[["w2-3"]], [["w2-3"]]]
    assert simulation.where(simulation.members) == {"node-0", "node-1", "node-3"}
    assert simulation.sizes == [2, 3]


def test_a_worker_that_goes_away_during_its_check_does_not_make_its_partner_suspect() -> None:
    simulation = simulate(replicas=2, nodes=4)
    simulation.settle(3)
    [[first, second]] = simulation.asked[0]
    simulation.kill_pod(first)
    simulation.cut_off = {simulation.pods[first].node}
    simulation.settle(60)
    assert second in simulation.members
    assert simulation.sizes[-1] == 2


def test_a_new_leader_checks_those_that_wait_and_leaves_the_others_in_peace() -> None:
    simulation = simulate(replicas=3)
    simulation.broken = {"node-1"}
    simulation.settle(120)
    rounds, checks = len(simulation.declared), len(simulation.asked)
    simulation.restart_operator()
    simulation.settle(60)
    assert len(simulation.declared) == rounds
    assert len(simulation.asked) == checks
    assert [entry["node"] for entry in simulation.job.status["leftOutNodes"]] == ["node-1"]


def test_a_new_leader_repeats_a_check_that_was_going_on() -> None:
    simulation = simulate(replicas=2)
    simulation.settle(3)
    assert simulation.asked
    simulation.restart_operator()
    simulation.settle(60)
    assert len(simulation.asked) == 2
    assert simulation.sizes == [2]


def test_a_suspended_job_checks_nothing() -> None:
    simulation = simulate(replicas=2)
    simulation.settle(3)
    simulation.job = replace(simulation.job, suspend=True, wanted=0, generation=2)
    simulation.settle(20)
    assert simulation.requests == {}
    assert simulation.sizes == []
    simulation.job = replace(simulation.job, suspend=False, wanted=2, generation=3)
    simulation.settle(30)
    assert simulation.sizes == [2]
    assert len(simulation.asked) == 2


def test_a_check_ends_in_any_case() -> None:
    simulation = simulate(replicas=2, minimum=2, nodes=2, maximum=2)
    simulation.mute = {"node-0", "node-1"}
    simulation.settle(2 * (20 + REPORT_MARGIN_SECONDS) + 10)
    assert {entry["message"] for entry in simulation.job.status["leftOutNodes"]} == {
        "has reported no result of its check after 20 s"
    }


def test_spares_are_checked_as_they_come_and_after_a_loss_with_all_others() -> None:
    simulation = simulate(nodes=5, minimum=None, maximum=None, spares=1)
    simulation.settle(15)
    assert simulation.sizes == [3]
    assert simulation.job.status["readySpares"] == 1
    (spare,) = [worker["name"] for worker in simulation.job.status["workers"] if worker["state"] == "Spare"]
    checks = len(simulation.asked)
    simulation.kill_pod(simulation.members[0])
    simulation.settle(1)
    assert {spare, *simulation.declared[0].workers[1:]} <= {worker for pair in simulation.asked[checks] for worker in pair}
    simulation.settle(20)
    assert simulation.sizes == [3, 0, 3]
    assert spare in simulation.members
    assert simulation.job.status["readySpares"] == 1
