import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.actions import CreatePod, RecordEvent
from elastic_pytorch_operator.model.announced_ends import AnnouncedEnd, Certainty, Taint
from elastic_pytorch_operator.model.observed import NodeView, Observed
from elastic_pytorch_operator.planning.failures.start_backoff import NONE_FAILED
from elastic_pytorch_operator.planning.nodes.evacuation import Evacuation, plan_evacuation
from elastic_pytorch_operator.planning.nodes.objections import ENDS, Objection, find_objections
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.workers.liveness import assess_workers

from tests.operator.builders import (
    NOW,
    a_job,
    a_pod,
    a_round,
    a_target,
    actions_of,
    an_agent,
    observed,
)
from tests.operator.simulation import Simulation, running
from tests.situations import situations

SPOT = Taint("aws-node-termination-handler/spot-itn", "event-1", "NoSchedule")
SURE = AnnouncedEnd("taint spot", Certainty.SURE)
WHY = "leaves node node-1, which announces its end by taint spot"


def evacuate(
    seen: Observed, leave_by: Mapping[str, float], size: int | None = None, **fields: Any
) -> Evacuation:
    """Decides with what the plan before has known of nodes that end."""
    known = tuple(Objection(node, ENDS, NOW - 60, until) for node, until in leave_by.items())
    job, candidates = a_job(**fields), assess_workers(seen)
    return plan_evacuation(
        job,
        a_target(job) if size is None else Target(size),
        seen,
        candidates,
        find_objections(job, seen, candidates, NONE_FAILED, known),
    )


def decide(
    end: AnnouncedEnd | None,
    *,
    ready: Sequence[int] = (),
    doomed: Sequence[int] = (1,),
    leave_by: float = math.inf,
    members: Sequence[int] = (0, 1, 2),
    **job: Any,
) -> Evacuation:
    """Members are on node-0, or on the node that ends; further workers are ready elsewhere."""
    pods = [a_pod(i, node="node-1" if i in doomed else "node-0") for i in members]
    pods += [a_pod(i, name=f"w{i}-b") for i in ready]
    nodes = {"node-0": NodeView("node-0"), "node-1": NodeView("node-1", end=end)}
    seen = observed(
        pods, [an_agent(pod.name) for pod in pods], nodes=nodes, round=a_round(*members)
    )
    return evacuate(seen, {"node-1": leave_by}, **job)


def test_worker_waits_for_its_replacement_but_not_beyond_the_notice() -> None:
    assert decide(SURE) == Evacuation({"w1": WHY}, recheck_at=NOW + 90)
    assert decide(SURE, ready=[1]) == Evacuation(leaving={"w1": WHY}, leave_by=NOW + 90)
    assert decide(SURE, leave_by=NOW + 1).staying == {"w1": WHY}
    assert decide(SURE, leave_by=NOW).leaving == {"w1": WHY}


def test_workers_of_several_nodes_leave_together() -> None:
    assert decide(SURE, doomed=[1, 2], ready=[1]).staying.keys() == {"w1", "w2"}
    assert decide(SURE, doomed=[1, 2], ready=[1, 2]).leaving.keys() == {"w1", "w2"}


@pytest.mark.parametrize(("later_seconds", "leaving"), [(30, {"w1", "w2"}), (31, {"w1"})])
def test_worker_whose_node_ends_later_stays_when_the_first_has_to_leave(
    later_seconds: float, leaving: set[str]
) -> None:
    pods = [a_pod(i, node=f"node-{i}") for i in range(3)]
    nodes = {
        "node-0": NodeView("node-0"),
        "node-1": NodeView("node-1", end=SURE),
        "node-2": NodeView("node-2", end=SURE),
    }
    seen = observed(pods, [an_agent(pod.name) for pod in pods], nodes=nodes, round=a_round(0, 1, 2))
    decision = evacuate(seen, {"node-1": NOW, "node-2": NOW + later_seconds})
    assert decision.leaving.keys() == leaving
    assert decision.staying.keys() == {"w1", "w2"} - leaving
    assert decision.recheck_at == (None if len(leaving) == 2 else NOW + later_seconds)


def test_worker_that_is_ready_elsewhere_suffices_if_the_group_stays_as_large() -> None:
    policy = {"resizePolicy": {"allowedReplicas": [2, 4]}, "replicas": 4, "minimum": 2}
    assert decide(SURE, members=(0, 1), ready=[2], **policy).leaving == {"w1": WHY}
    assert decide(SURE, members=(0, 1), **policy).staying == {"w1": WHY}


def test_worker_that_is_no_longer_wanted_needs_no_replacement() -> None:
    assert decide(SURE, replicas=2).leaving == {"w1": WHY}
    fewer = decide(SURE, replicas=2, doomed=[1, 2])
    assert (fewer.staying.keys(), fewer.leaving.keys()) == ({"w1"}, {"w2"})


def test_worker_that_is_in_no_group_leaves_at_once() -> None:
    pods = [a_pod(0), a_pod(1, node="node-1")]
    nodes = {"node-0": NodeView("node-0"), "node-1": NodeView("node-1", end=SURE)}
    seen = observed(pods, [an_agent("w0"), an_agent("w1")], nodes=nodes, round=a_round(0))
    assert evacuate(seen, {}).leaving == {"w1": WHY}


@situations(
    "round_, target, leaving",
    {
        "its state goes into the next group first": (2, 2, set()),
        "it was never in a group": (0, 2, {"w1"}),
        "the job is suspended": (2, 0, {"w1"}),
    },
)
def test_worker_of_a_group_that_has_stopped_stays_until_there_is_another(
    round_: int, target: int, leaving: set[str]
) -> None:
    pods = [a_pod(i, node=f"node-{i}") for i in range(3)]
    agents = [an_agent("w1", "ready", round_), *(an_agent(w, "ready", 0) for w in ("w0", "w2"))]
    nodes = {"node-0": NodeView("node-0"), "node-1": NodeView("node-1", end=SURE)}
    seen = observed(pods, agents, nodes=nodes, round=a_round(number=3))
    found = evacuate(seen, {}, target, replicas=2)
    assert found.leaving.keys() == leaving
    assert found.staying.keys() == {"w1"} - leaving


def test_end_that_is_soft_or_far_away_makes_no_worker_leave() -> None:
    assert decide(replace(SURE, certainty=Certainty.SOFT)) == Evacuation()
    assert decide(AnnouncedEnd("label", Certainty.DATED, at="2026-01-01T01:00:00Z")) == Evacuation(
        recheck_at=NOW + 3000
    )


def test_worker_on_a_faulty_node_waits_for_its_replacement_however_long_that_takes() -> None:
    fault = AnnouncedEnd("condition GpuMemWatch=True", Certainty.SURE, math.inf, fault=True)
    why = {"w1": "leaves node node-1, which reports a fault by condition GpuMemWatch=True"}
    assert decide(fault) == Evacuation(why)
    assert decide(fault, ready=[1]) == Evacuation(leaving=why)


# In the course of a job.


def node_of(simulation: Simulation, place: int) -> str:
    return simulation.pods[simulation.members[place]].node


def save(simulation: Simulation, checkpoints: int) -> None:
    for name, agent in simulation.agents.items():
        simulation.agents[name] = replace(
            agent, progress=replace(agent.progress, checkpoints=checkpoints)
        )


def test_spot_notice_costs_one_round_in_which_nobody_is_missing() -> None:
    simulation = running(replicas=3)
    node, leaving = node_of(simulation, 1), simulation.members[1]
    simulation.announce(node, SPOT)
    simulation.reconcile()
    assert [action.index for action in actions_of(simulation.last, CreatePod)] == [1]
    [event] = actions_of(simulation.last, RecordEvent)
    assert (event.reason, event.note) == (
        "NodeEnding",
        f"Node {node} announces its end by taint {SPOT.key}. On it: {leaving}",
    )
    resizing = simulation.condition("Resizing")
    assert (resizing["status"], resizing["reason"]) == ("True", "NodeEnding")
    assert (
        f"{leaving} leaves node {node}, which announces its end by taint {SPOT.key}"
        in resizing["message"]
    )
    simulation.settle(20)
    assert simulation.sizes == [3, 3]
    assert simulation.declared[-1].reason == "WorkerLeaving"
    assert leaving not in simulation.pods
    assert all(pod.node != node for pod in simulation.pods.values())
    assert simulation.status["failures"] == 0
    assert simulation.condition("Resizing")["reason"] == "AtWantedSize"
    assert simulation.reconcile().actions == ()


def test_job_leaves_in_time_where_there_is_no_room_for_a_replacement() -> None:
    simulation = running(replicas=3, minimum=1)
    simulation.pods_per_node = 1
    node = node_of(simulation, 1)
    simulation.announce(node, SPOT)
    simulation.settle(85)
    assert simulation.sizes == [3]
    simulation.settle(10)
    assert simulation.sizes == [3, 2]
    assert simulation.declared[-1].orderly_since == 1, "the group stops at a step boundary"
    simulation.settle(60)
    assert len(simulation.pods) == 3, "one waits for a place"


@pytest.mark.parametrize("seconds", [1, 30])
def test_withdrawn_announcement_is_forgotten(seconds: float) -> None:
    simulation = running(replicas=3, minimum=1)
    simulation.pods_per_node = 1
    before, node = simulation.members, node_of(simulation, 1)
    simulation.announce(node, SPOT)
    simulation.settle(seconds)
    assert len(simulation.pods) == 4
    simulation.announce(node)
    simulation.settle(200)
    assert (simulation.members, len(simulation.declared)) == (before, 1)
    assert set(simulation.pods) == set(before)
    assert simulation.memory.nodes == ()


def test_drain_before_the_replacement_is_ready_takes_no_second_replacement() -> None:
    simulation = running(replicas=3)
    leaving = simulation.members[1]
    simulation.announce(node_of(simulation, 1), SPOT)
    simulation.settle(0.5)
    simulation.delete_pod(leaving)
    simulation.settle(20)
    assert simulation.sizes == [3, 2, 3]
    assert simulation.made == 4


def test_pod_that_the_cluster_is_about_to_delete_leaves_at_once() -> None:
    simulation = running(replicas=3)
    leaving = simulation.members[1]
    simulation.pods[leaving] = replace(simulation.pods[leaving], disrupted=True)
    simulation.reconcile()
    assert leaving not in simulation.members
    assert [action.index for action in actions_of(simulation.last, CreatePod)] == [1]


def test_new_leader_gives_the_worker_no_second_replacement() -> None:
    simulation = running(replicas=3)
    simulation.announce(node_of(simulation, 1), SPOT)
    simulation.settle(0.5)
    simulation.restart_operator()
    simulation.settle(30)
    assert simulation.made == 4
    assert simulation.sizes[-1] == 3


def test_change_waits_for_a_checkpoint_no_longer_than_the_node_is_there() -> None:
    policy = {"checkpointWaitSeconds": 600, "checkpointPath": "/checkpoints"}
    simulation = running(replicas=3, resizePolicy=policy)
    leaving = simulation.members[1]
    save(simulation, 1)
    simulation.announce(node_of(simulation, 1), SPOT)
    simulation.settle(80)
    assert leaving in simulation.members
    simulation.settle(15)
    assert leaving not in simulation.members


def test_worker_without_a_replacement_leaves_at_a_checkpoint_in_the_second_half_of_the_notice() -> (
    None
):
    policy = {"checkpointWaitSeconds": 600, "checkpointPath": "/checkpoints"}
    simulation = running(replicas=3, minimum=1, resizePolicy=policy)
    simulation.pods_per_node = 1
    save(simulation, 1)
    simulation.announce(node_of(simulation, 1), SPOT)
    simulation.settle(25)
    save(simulation, 2)
    simulation.settle(25)
    assert len(simulation.declared) == 1
    save(simulation, 3)
    simulation.settle(1)
    assert simulation.sizes == [3, 2]


def test_workers_that_leave_their_nodes_are_named() -> None:
    evacuation = Evacuation(staying={"w0": "leaves node n", "w1": "leaves node m"})
    after = "as soon as its replacement is ready"
    assert evacuation.explain() == f"w0 leaves node n, {after}; w1 leaves node m, {after}"
    assert Evacuation().explain() == ""
