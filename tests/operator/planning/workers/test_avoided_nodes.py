"""Which nodes new pods keep away from, and that a pod stays small however many there are."""

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.informer.pod_views import view_node
from elastic_pytorch_operator.model.actions import CreatePod
from elastic_pytorch_operator.model.announced_ends import MAINTENANCE_TIME, MARKS, Certainty, parse_marks
from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.workers.avoided_nodes import MAX_AVOIDED, MAX_UNWANTED, AvoidedNodes, nodes_to_avoid

from tests.operator.builders import a_job, a_pending_pod, a_pod, a_worker_pod, observed

MAX_POD_BYTES = 40_000
CANDIDATE = {"key": "DeletionCandidateOfClusterAutoscaler", "value": "1700000000", "effect": "PreferNoSchedule"}
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "pytorch", "image": "torch"}]}}
TOLERANT = {"spec": {**TEMPLATE["spec"], "tolerations": [{"operator": "Exists"}]}}
NAME = "ip-10-{}-{}-17.eu-central-1.compute.internal"
MAY_END = {"labels": {"acme.io/may-end": "yes"}}
ENDS = {"labels": {"acme.io/ends": "yes"}}


def a_node(name: str, *taints: Mapping[str, str], labels: Mapping[str, str] | None = None) -> NodeView:
    own = (*parse_marks(["acme.io/may-end"], Certainty.SOFT), *parse_marks(["acme.io/ends"], Certainty.SURE))
    found = {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": list(taints)}}
    return view_node(found, (*MARKS, *own))


def named(*nodes: NodeView) -> dict[str, NodeView]:
    return {node.name: node for node in nodes}


FREE = a_node("free")
SOFT, SURE, IDLE = a_node("soft", **MAY_END), a_node("sure", **ENDS), a_node("idle", CANDIDATE)
FAR = a_node("far", labels={MAINTENANCE_TIME: "4000000000"})


@pytest.mark.parametrize(
    ("nodes", "doubtful", "never", "unwanted"),
    [
        pytest.param([FREE, FAR], [], [], [], id="nothing ends soon"),
        pytest.param([FREE, SOFT], [], [], ["soft"], id="one may end"),
        pytest.param([SOFT], [], [], ["soft"], id="the only one may end"),
        pytest.param([FREE, SURE], [], ["sure"], [], id="one ends"),
        pytest.param([SURE], [], ["sure"], [], id="the only one ends"),
        pytest.param([FREE, IDLE], [], [], [], id="the scheduler itself prefers others"),
        pytest.param([FREE, SOFT, SURE, a_node("dead")], ["dead"], ["dead", "sure"], ["soft"], id="one is doubtful"),
        pytest.param([SOFT, a_node("dead")], ["dead"], ["dead"], ["soft"], id="one that may end is better than a dead one"),
        pytest.param([SURE, a_node("dead")], ["dead"], ["sure"], ["dead"], id="a doubtful one is better than none"),
        pytest.param([a_node("dead")], ["dead"], [], ["dead"], id="the only one is doubtful"),
        pytest.param([FREE, SOFT], ["soft"], ["soft"], [], id="doubtful, and may end"),
        pytest.param(
            [FREE, a_node("full", {**CANDIDATE, "key": "any", "effect": "NoSchedule"}, **MAY_END)], [], [], [], id="takes none"
        ),
    ],
)
def test_nodes_are_avoided_as_far_as_they_are_worse(
    nodes: list[NodeView], doubtful: list[str], never: list[str], unwanted: list[str]
) -> None:
    found = nodes_to_avoid(observed(nodes=named(*nodes)), TEMPLATE, doubtful)
    assert found == AvoidedNodes(tuple(never), tuple(unwanted))


def test_taint_that_a_pod_tolerates_makes_the_scheduler_avoid_nothing() -> None:
    assert nodes_to_avoid(observed(nodes=named(FREE, IDLE)), TOLERANT, []).unwanted == ("idle",)
    repelling = a_node("n", {"key": "acme.io/may-end", "value": "", "effect": "PreferNoSchedule"})
    assert nodes_to_avoid(observed(nodes=named(FREE, repelling)), TEMPLATE, []).unwanted == ()


def test_pod_that_has_found_no_node_makes_doubtful_ones_the_last_resort() -> None:
    pods = [a_pending_pod(0, unschedulable=True, avoids=frozenset({"dead"}))]
    found = nodes_to_avoid(observed(pods, nodes=named(FREE, a_node("dead"))), TEMPLATE, ["dead"])
    assert found == AvoidedNodes((), ("dead",))


def many(count: int, *taints: Mapping[str, str], labels: Mapping[str, str] | None = None) -> dict[str, NodeView]:
    node = a_node("any", *taints, labels=labels)
    names = (NAME.format(number // 250, number % 250) for number in range(count))
    return {"free": FREE, **{name: replace(node, name=name) for name in names}}


def test_of_many_nodes_those_are_named_where_the_job_has_been() -> None:
    nodes = many(500, **MAY_END)
    own = [NAME.format(1, number) for number in range(200, 220)]
    pods = [a_pod(index, node=name) for index, name in enumerate(own)]
    found = nodes_to_avoid(observed(pods, nodes=nodes), TEMPLATE, []).unwanted
    assert len(found) == MAX_UNWANTED
    assert {*own} <= {*found}
    doubtful = [NAME.format(1, 249)]
    found = nodes_to_avoid(observed(pods, nodes={**many(500, **ENDS), **nodes}), TEMPLATE, doubtful).never
    assert {*found} == {*doubtful}


def test_of_many_nodes_that_end_the_known_bad_ones_are_named_first() -> None:
    nodes = many(500, **ENDS)
    dead = NAME.format(1, 249)
    found = nodes_to_avoid(observed(nodes=nodes), TEMPLATE, [dead]).never
    assert len(found) == MAX_AVOIDED
    assert dead in found


def test_each_kind_of_worker_keeps_away_from_nodes_of_its_own() -> None:
    nodes = named(*(a_node(name, labels={**ENDS["labels"], "capacity": name}) for name in ("on-demand", "spot")))
    template = {"spec": {**TEMPLATE["spec"], "nodeSelector": {"capacity": "on-demand"}}}
    job = a_job(minimum=1, template=template, scheduling={"extraWorkers": {"nodeSelector": {"capacity": "spot"}}})
    created = [action for action in plan(job, observed(nodes=nodes), Memory()).actions if isinstance(action, CreatePod)]
    assert [(pod.index, pod.avoid) for pod in created] == [(0, ("on-demand",)), (1, ("spot",)), (2, ("spot",))]


@pytest.mark.parametrize(
    "nodes",
    [many(5000, CANDIDATE), many(5000, **MAY_END), many(5000, **ENDS), {**many(5000, **ENDS), "soft": SOFT}],
    ids=["idle", "may end", "end", "both"],
)
def test_size_of_a_pod_does_not_grow_with_the_cluster(nodes: dict[str, NodeView]) -> None:
    def created(nodes: Collection[NodeView]) -> CreatePod:
        todo = plan(a_job(), observed(nodes={node.name: node for node in nodes}), Memory())
        return next(action for action in todo.actions if isinstance(action, CreatePod))

    pod = created(nodes.values())
    bare = len(json.dumps(a_worker_pod()))
    assert len(json.dumps(a_worker_pod(None, 0, pod.avoid, unwanted=pod.unwanted))) < bare + MAX_POD_BYTES


@pytest.mark.parametrize("doubtful", [[], ["dead"]])
def test_requests_of_a_large_template_are_counted_once_for_all_nodes(doubtful: list[str]) -> None:
    nodes = named(*(a_node(NAME.format(n // 250, n % 250), **MAY_END) for n in range(500)), a_node("dead"))
    limits = {f"acme.io/device-{n}": "1" for n in range(10_000)}
    template = {"spec": {"containers": [{"name": "pytorch", "resources": {"limits": limits}}]}}
    began = time.thread_time()
    nodes_to_avoid(replace(observed([]), nodes=nodes), template, doubtful)
    assert time.thread_time() - began < 2.0, "five hundred times take ten"
