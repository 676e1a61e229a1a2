"""After random events have stopped, a job rests at its wanted size and broke no rule.

The rules are asserted by the simulation after every plan: the size is within min..max, no two
workers of a round have one index, units are whole and in order, those of one rack have consecutive
ranks, round numbers grow, no ended pod is a member.
"""

from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.announced_ends import Taint, announced_end
from elastic_pytorch_operator.model.failure import DEVICE_FAULT
from elastic_pytorch_operator.model.observed import AgentState, NodeView
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.hypothesis_examples import examples
from tests.operator.builders import a_job
from tests.operator.simulation import Simulation
from tests.operator.spec.test_failure_rules import DISRUPTED, on_codes, on_condition

pytestmark = pytest.mark.simulation

WORKER = st.integers(0, 7)
EVENT = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([1, 2, 5, 20])),
    st.tuples(st.just("fail"), WORKER),
    st.tuples(st.just("fail all"), st.just(0)),
    st.tuples(st.just("kill"), WORKER),
    st.tuples(st.just("delete"), WORKER),
    st.tuples(st.just("scale"), st.integers(2, 5)),
    st.tuples(st.just("spares"), st.integers(0, 2)),
    st.tuples(st.just("hang node"), st.integers(0, 2)),
    st.tuples(st.just("node back"), st.integers(0, 2)),
    st.tuples(st.just("node not ready"), st.integers(0, 2)),
    st.tuples(st.just("node removed"), st.integers(0, 2)),
    st.tuples(st.just("cordon"), st.integers(0, 2)),
    st.tuples(st.just("node announces"), st.integers(0, 11)),
    st.tuples(st.just("node is faulty"), st.integers(0, 5)),
    st.tuples(st.just("restart operator"), st.just(0)),
    st.tuples(st.just("node rejects"), st.integers(0, 2)),
    st.tuples(st.just("node accepts"), st.integers(0, 2)),
    st.tuples(st.just("all nodes not ready"), st.just(0)),
    st.tuples(st.just("policy refuses"), st.integers(0, 1)),
    st.tuples(st.just("writes fail"), st.integers(1, 5)),
    st.tuples(st.just("device fails"), WORKER),
    st.tuples(st.just("exit with 42"), WORKER),
    st.tuples(st.just("end with 43"), WORKER),
    st.tuples(st.just("evict"), WORKER),
    st.tuples(st.just("tell to stop, then evict"), WORKER),
)
POLICY = {
    "maxFailures": 1000,
    "rules": [on_codes("RestartGroup", 42), on_codes("Ignore", 43), on_condition("RestartGroup")],
}
# What a node may announce: nothing, that it may end, and that it will, with and without a taint.
TAINTS = (
    (),
    (Taint("DeletionCandidateOfClusterAutoscaler", "", "PreferNoSchedule"),),
    (Taint("karpenter.sh/disrupted", "", "NoSchedule"),),
    (),
)
LABELS = ({}, {}, {}, {"cloud.google.com/active-node-maintenance": "ONGOING"})
RACKS = {"node-0": {"rack": "r1"}, "node-1": {"rack": "r2"}}  # the third one is in none


def happen(simulation: Simulation, event: str, number: int) -> None:  # noqa: PLR0915
    names = sorted(simulation.pods)
    node = f"node-{number % 3}"
    match event:
        case "wait":
            simulation.settle(number * 0.25)
        case "fail" if names:
            simulation.fail_worker(names[number % len(names)])
        case "fail all":
            for name in names:
                simulation.fail_worker(name)
        case "kill" if names:
            simulation.kill_pod(names[number % len(names)])
        case "delete" if names:
            simulation.delete_pod(names[number % len(names)])
        case "scale":
            simulation.scale(number * simulation.job.unit_replicas)
        case "spares":
            spares = number * simulation.job.unit_replicas
            simulation.job = replace(
                simulation.job, spares=spares, generation=simulation.job.generation + 1
            )
        case "hang node":
            simulation.hung_nodes.add(node)
        case "node back":
            simulation.hung_nodes.discard(node)
            simulation.nodes[node] = NodeView(node, labels=RACKS.get(node, {}))
        case "node not ready":
            simulation.nodes[node] = NodeView(node, ready=False)
        case "node removed":
            simulation.nodes[node] = NodeView(node, ready=False, removed=True)
        case "cordon":
            simulation.nodes[node] = NodeView(
                node, unschedulable=True, end=announced_end([], {}, unschedulable=True)
            )
        case "node announces":
            simulation.announce(node, *TAINTS[number // 3], labels=LABELS[number // 3])
        case "node is faulty":
            simulation.announce(
                node,
                labels=RACKS.get(node, {}),
                condition=("GpuMemWatch", "GpuThermalWatch")[number // 3],
            )
        case "restart operator":
            simulation.restart_operator()
        case "node rejects":
            simulation.rejecting_nodes.add(node)
        case "node accepts":
            simulation.rejecting_nodes.discard(node)
        case "all nodes not ready":
            simulation.nodes = {name: NodeView(name, ready=False) for name in simulation.nodes}
        case "policy refuses":
            simulation.refusing = bool(number)
        case "writes fail":
            simulation.failing_writes = number
        case "device fails" if names:
            simulation.fail_worker(
                names[number % len(names)], "a device has failed", exception=DEVICE_FAULT
            )
        case "exit with 42" if names:
            simulation.fail_worker(names[number % len(names)], "ValueError: boom", exit_code=42)
        case "end with 43" if names and not simulation.pods[names[number % len(names)]].ended:
            simulation.end_pod(names[number % len(names)], exit_code=43)
        case "evict" | "tell to stop, then evict" if names:
            name = names[number % len(names)]
            if event != "evict" and (agent := simulation.agents.get(name)) is not None:
                simulation.agents[name] = replace(agent, state=AgentState.LEAVING)
                simulation.reconcile()
            simulation.pods[name] = replace(
                simulation.pods[name], conditions=frozenset({DISRUPTED})
            )
            simulation.delete_pod(name)
    simulation.reconcile()


@pytest.mark.parametrize(("unit", "scheduling"), [(1, {}), (2, {"rankTopologyKey": "rack"})])
@settings(max_examples=examples(120))
@given(
    events=st.lists(EVENT, max_size=25),
    sidecars=st.booleans(),
    pauses=st.booleans(),
    spares=st.integers(0, 2),
)
@example(
    events=[("scale", 5), ("wait", 5), ("wait", 20), ("writes fail", 1), ("spares", 0)],
    sidecars=False,
    pauses=False,
    spares=2,
)
def test_converges_and_never_breaks_a_rule(
    unit: int,
    scheduling: dict[str, Any],
    events: list[tuple[str, int]],
    sidecars: bool,
    pauses: bool,
    spares: int,
) -> None:
    growth = {"minSecondsBetweenGrowths": 10 if pauses else 0}
    sizes = {
        "replicas": 3 * unit,
        "minimum": 2 * unit,
        "maximum": 5 * unit,
        "spares": spares * unit,
        "unitReplicas": unit,
    }
    job = a_job(**sizes, failurePolicy=POLICY, resizePolicy=growth, scheduling=scheduling)
    simulation = Simulation(job, sidecars=sidecars, pods_per_node=3 * unit)
    simulation.nodes = {
        name: NodeView(name, labels=RACKS.get(name, {})) for name in simulation.nodes
    }
    simulation.settle(3)
    for event, number in events:
        happen(simulation, event, number)
    simulation.hung_nodes.clear()
    simulation.rejecting_nodes.clear()
    simulation.refusing, simulation.failing_writes = False, 0
    simulation.nodes = {name: NodeView(name) for name in simulation.nodes}
    simulation.settle(180)  # the longest pauses are a minute
    assert simulation.round is not None
    assert simulation.round.size == simulation.job.wanted
    assert all(
        simulation.agents[worker].round == simulation.round.number
        for worker in simulation.round.workers
    )
    live = [pod for pod in simulation.pods.values() if not pod.ended]
    assert len(live) == simulation.job.wanted + simulation.job.spares
    told = [worker["state"] for worker in simulation.status["workers"]]
    assert (told.count("Running"), told.count("Spare")) == (
        simulation.job.wanted,
        simulation.job.spares,
    )
    assert not any(pod.lingers for pod in simulation.pods.values()), (
        "what has ended gives its node back"
    )
    assert simulation.status["state"] == "Running"
    restarts = simulation.status.get("groupRestarts", 0)
    assert all(pod.group_restarts == restarts for pod in live), (
        "a restart of the group leaves no pod behind"
    )
    assert simulation.reconcile().actions == (), "planning again must change nothing"
