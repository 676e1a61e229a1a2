import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.informer.pod_views import view_node, view_pod
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.model.actions import CreatePod
from elastic_pytorch_operator.model.announced_ends import (
    MAINTENANCE_TIME,
    MARKS,
    Certainty,
    Taint,
    parse_marks,
)
from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.nodes.objections import SUSPECTED, Objection, Objections
from elastic_pytorch_operator.planning.nodes.placement import (
    MAX_AVOIDED,
    MAX_UNWANTED,
    AvoidedNodes,
    misled_pods,
    nodes_for,
    nodes_to_avoid,
)
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.reconcile.execute import Executor

from tests.operator.builders import NOW, a_job, a_pending_pod, a_pod, a_worker_pod, observed
from tests.operator.event_loop_time import MAX_TURN_CALLS, fits
from tests.situations import situations

MAX_POD_BYTES = 40_000
CANDIDATE = {
    "key": "DeletionCandidateOfClusterAutoscaler",
    "value": "1700000000",
    "effect": "PreferNoSchedule",
}
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "pytorch", "image": "torch"}]}}
TOLERANT = {"spec": {**TEMPLATE["spec"], "tolerations": [{"operator": "Exists"}]}}
NAME = "ip-10-{}-{}-17.eu-central-1.compute.internal"
MAY_END = {"labels": {"acme.io/may-end": "yes"}}
ENDS = {"labels": {"acme.io/ends": "yes"}}


def a_node(
    name: str, *taints: Mapping[str, str], labels: Mapping[str, str] | None = None
) -> NodeView:
    own = (
        *parse_marks(["acme.io/may-end"], Certainty.SOFT),
        *parse_marks(["acme.io/ends"], Certainty.SURE),
    )
    found = {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": list(taints)}}
    return view_node(found, (*MARKS, *own))


def suspicions(*names: str) -> Objections:
    return tuple(Objection(name, SUSPECTED, NOW, NOW + 90) for name in names)


def named(*nodes: NodeView) -> dict[str, NodeView]:
    return {node.name: node for node in nodes}


FREE = a_node("free")
SOFT, SURE, IDLE = a_node("soft", **MAY_END), a_node("sure", **ENDS), a_node("idle", CANDIDATE)
FAR, PAST = (
    a_node(name, labels={MAINTENANCE_TIME: at})
    for name, at in (("far", "4000000000"), ("past", "1700000000"))
)


@situations(
    "nodes, doubtful, never, unwanted",
    {
        "nothing ends soon": ([FREE, FAR, PAST], [], [], []),
        "one may end": ([FREE, SOFT], [], [], ["soft"]),
        "the only one may end": ([SOFT], [], [], ["soft"]),
        "one ends": ([FREE, SURE], [], ["sure"], []),
        "the only one ends": ([SURE], [], ["sure"], []),
        "the scheduler itself prefers others": ([FREE, IDLE], [], [], []),
        "one is doubtful": (
            [FREE, SOFT, SURE, a_node("dead")],
            ["dead"],
            ["dead", "sure"],
            ["soft"],
        ),
        "one that may end is better than a dead one": (
            [SOFT, a_node("dead")],
            ["dead"],
            ["dead"],
            ["soft"],
        ),
        "a doubtful one is better than none": (
            [SURE, a_node("dead")],
            ["dead"],
            ["sure"],
            ["dead"],
        ),
        "the only one is doubtful": ([a_node("dead")], ["dead"], [], ["dead"]),
        "doubtful, and may end": ([FREE, SOFT], ["soft"], ["soft"], []),
        "takes none": (
            [FREE, a_node("full", {**CANDIDATE, "key": "any", "effect": "NoSchedule"}, **MAY_END)],
            [],
            [],
            [],
        ),
    },
)
def test_nodes_are_avoided_as_far_as_they_are_worse(
    nodes: list[NodeView], doubtful: list[str], never: list[str], unwanted: list[str]
) -> None:
    found = nodes_to_avoid(observed(nodes=named(*nodes)), TEMPLATE, suspicions(*doubtful))
    assert found == AvoidedNodes(tuple(never), tuple(unwanted))


def test_taint_that_a_pod_tolerates_makes_the_scheduler_avoid_nothing() -> None:
    assert nodes_to_avoid(observed(nodes=named(FREE, IDLE)), TOLERANT, ()).unwanted == ("idle",)
    repelling = a_node("n", {"key": "acme.io/may-end", "value": "", "effect": "PreferNoSchedule"})
    assert nodes_to_avoid(observed(nodes=named(FREE, repelling)), TEMPLATE, ()).unwanted == ()


GPU = {"labels": {"gpu": "yes"}}
GPU_TEMPLATE = {"spec": {"nodeSelector": {"gpu": "yes"}, "containers": [{"name": "pytorch"}]}}
DEAD, ALIVE = NodeView("dead", **GPU), NodeView("alive", **GPU)


@situations(
    "alive, pod, room",
    {
        "another fits": (ALIVE, {}, True),
        "that is cordoned": (replace(ALIVE, unschedulable=True), {}, False),
        "that is not ready": (replace(ALIVE, ready=False), {}, False),
        "that does not fit": (replace(ALIVE, labels={}), {}, False),
        "a pod that avoids some is on its way": (ALIVE, {"avoids": frozenset({"dead"})}, True),
        "a pod that avoids none has found no node": (ALIVE, {"unschedulable": True}, True),
        "one that avoids some has not": (
            ALIVE,
            {"unschedulable": True, "avoids": frozenset({"dead"})},
            False,
        ),
    },
)
def test_doubtful_node_is_the_last_resort_where_no_other_takes_a_pod(
    alive: NodeView, pod: dict[str, Any], room: bool
) -> None:
    pods = [a_pending_pod(0, **pod)] if pod else []
    found = nodes_to_avoid(
        observed(pods, nodes=named(FREE, DEAD, alive)), GPU_TEMPLATE, suspicions("dead")
    )
    assert found == (AvoidedNodes(("dead",), ()) if room else AvoidedNodes((), ("dead",)))


@situations(
    "node, suspected, misled, misled_without_room",
    {
        "the node lives": (ALIVE, False, True, True),
        "it is suspected": (ALIVE, True, False, True),
        "it may end": (SOFT, False, False, True),
        "it ends in years": (FAR, False, True, True),
        "the time of its end is long over": (PAST, False, True, True),
        "it ends": (SURE, False, False, False),
        "it ends, and is suspected": (SURE, True, False, False),
        "it is not ready": (replace(ALIVE, ready=False), False, False, False),
        "it is cordoned": (replace(ALIVE, unschedulable=True), False, False, False),
    },
)
def test_pod_waits_in_vain_once_the_node_that_it_avoids_would_take_it(
    node: NodeView, suspected: bool, misled: bool, misled_without_room: bool
) -> None:
    objections = suspicions(node.name) if suspected else ()
    for unschedulable, expected in ((False, misled), (True, misled_without_room)):
        pods = [
            a_pending_pod(0, avoids=frozenset({node.name, "unknown"}), unschedulable=unschedulable)
        ]
        assert misled_pods(observed(pods, nodes=named(node)), objections) == (
            {"w0"} if expected else set()
        )


def test_pod_that_has_a_node_or_avoids_none_does_not_wait_in_vain() -> None:
    pods = [a_pod(0, avoids=frozenset({"alive"})), a_pending_pod(1, unschedulable=True)]
    assert misled_pods(observed(pods, nodes=named(ALIVE)), ()) == set()


async def test_replacement_is_made_as_it_was_decided() -> None:
    cluster = FakeCluster()
    executor = Executor(cluster, Cache(), AgentSettings("http://operator"))
    (write,) = executor.writes(a_job(), [CreatePod(0, ("node-1",), unwanted=("node-2",))])
    await write.send()
    view = view_pod(cluster.pods()[0], seen_at=NOW)
    assert (view.avoids, view.prefers_others_to) == ({"node-1"}, {"node-2"})


def many(
    count: int, *taints: Mapping[str, str], labels: Mapping[str, str] | None = None
) -> dict[str, NodeView]:
    node = a_node("any", *taints, labels=labels)
    names = (NAME.format(number // 250, number % 250) for number in range(count))
    return {"free": FREE, **{name: replace(node, name=name) for name in names}}


def test_of_many_nodes_those_are_named_where_the_job_has_been() -> None:
    nodes = many(500, **MAY_END)
    own = [NAME.format(1, number) for number in range(200, 220)]
    pods = [a_pod(index, node=name) for index, name in enumerate(own)]
    found = nodes_to_avoid(observed(pods, nodes=nodes), TEMPLATE, ()).unwanted
    assert len(found) == MAX_UNWANTED
    assert {*own} <= {*found}


def test_of_many_nodes_that_end_the_known_bad_ones_are_named_first() -> None:
    nodes = many(500, **ENDS)
    dead = NAME.format(1, 249)
    found = nodes_to_avoid(observed(nodes=nodes), TEMPLATE, suspicions(dead)).never
    assert len(found) == MAX_AVOIDED
    assert dead in found


def test_each_kind_of_worker_keeps_away_from_nodes_of_its_own() -> None:
    nodes = named(
        *(
            a_node(name, labels={**ENDS["labels"], "capacity": name})
            for name in ("on-demand", "spot")
        )
    )
    template = {"spec": {**TEMPLATE["spec"], "nodeSelector": {"capacity": "on-demand"}}}
    job = a_job(
        minimum=1,
        template=template,
        scheduling={"extraWorkers": {"nodeSelector": {"capacity": "spot"}}},
    )
    created = [
        action
        for action in plan(job, observed(nodes=nodes), Memory()).actions
        if isinstance(action, CreatePod)
    ]
    found = [(pod.index, pod.avoid) for pod in created]
    assert found == [(0, ("on-demand",)), (1, ("spot",)), (2, ("spot",))]


@situations(
    "nodes",
    {
        "idle": many(5000, CANDIDATE),
        "may end": many(5000, **MAY_END),
        "end": many(5000, **ENDS),
        "both": {**many(5000, **ENDS), "soft": SOFT},
    },
)
def test_size_of_a_pod_does_not_grow_with_the_cluster(nodes: dict[str, NodeView]) -> None:
    def created(nodes: Collection[NodeView]) -> CreatePod:
        todo = plan(a_job(), observed(nodes={node.name: node for node in nodes}), Memory())
        return next(action for action in todo.actions if isinstance(action, CreatePod))

    pod = created(nodes.values())
    bare = len(json.dumps(a_worker_pod()))
    assert (
        len(json.dumps(a_worker_pod(None, 0, pod.avoid, unwanted=pod.unwanted)))
        < bare + MAX_POD_BYTES
    )


@pytest.mark.parametrize("doubtful", [[], ["dead"]])
def test_requests_of_a_large_template_are_counted_once_for_all_nodes(doubtful: list[str]) -> None:
    nodes = named(
        *(a_node(NAME.format(n // 250, n % 250), **MAY_END) for n in range(500)), a_node("dead")
    )
    limits = {f"acme.io/device-{n}": "1" for n in range(10_000)}
    template = {"spec": {"containers": [{"name": "pytorch", "resources": {"limits": limits}}]}}
    seen = observed([], nodes=nodes)
    assert fits(
        lambda: nodes_to_avoid(seen, template, suspicions(*doubtful)), 100 * MAX_TURN_CALLS
    ), "five hundred times take ten seconds"


# Which nodes could take a pod.

NODE = NodeView(
    "gpu-0",
    labels={"zone": "a", "generation": "9"},
    taints=(Taint("gpu", "yes", "NoSchedule"),),
    allocatable={"cpu": "7910m", "memory": "32Gi", "nvidia.com/gpu": "8"},
)
TOLERATION = {"key": "gpu", "operator": "Exists"}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        }
    }


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return required(
        {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    )


def name(operator: str, value: str) -> dict[str, Any]:
    return required(
        {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [value]}]}
    )


def asks(**quantities: str) -> dict[str, Any]:
    return {"containers": [{"name": "pytorch", "resources": {"requests": quantities}}]}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        ({"nodeSelector": {"pool": "a"}}, False),
        (label("zone", "In", "a", "b"), True),
        (label("zone", "In", "b"), False),
        (label("zone", "NotIn", "b"), True),
        (label("pool", "NotIn", "b"), True),
        (label("zone", "NotIn", "a"), False),
        (label("zone", "Exists"), True),
        (label("pool", "Exists"), False),
        (label("pool", "DoesNotExist"), True),
        (label("generation", "Gt", "8"), True),
        (label("generation", "Gt", "9"), False),
        (label("generation", "Lt", "10"), True),
        (label("zone", "Lt", "10"), False),
        (label("generation", "Gt", "²"), False),
        (label("generation", "Gt", "-1"), True),
        (label("generation", "Lt", "9" * 19), False),
        (label("zone", "Like", "a"), False),
        (name("In", "gpu-0"), True),
        (name("NotIn", "gpu-0"), False),
        (required(), False),
        (required({}), False),
        (required({}, {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), True),
        ({"affinity": {"podAffinity": {}}}, True),
        (asks(cpu="7.91"), True),
        (asks(cpu="8"), False),
        (asks(memory="33554432Ki"), True),
        (asks(memory="34G"), True),
        (asks(memory="35G"), False),
        (asks(**{"nvidia.com/gpu": "8"}), True),
        (asks(**{"nvidia.com/gpu": "9"}), False),
        (asks(**{"amd.com/gpu": "1"}), False),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}, True),
        ({"containers": [{"resources": {"limits": {"cpu": "9"}, "requests": {"cpu": "1"}}}]}, True),
        ({"containers": [*asks(cpu="4")["containers"], *asks(cpu="4")["containers"]]}, False),
    ],
)
def test_what_a_pod_asks_for(spec: dict[str, Any], fits: bool) -> None:
    assert list(nodes_for([NODE], {"tolerations": [TOLERATION], **spec})) == (
        [NODE] if fits else []
    )


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({}, False),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_taints(toleration: dict[str, str], tolerated: bool) -> None:
    assert any(nodes_for([NODE], {"tolerations": [{"key": "another"}, toleration]})) is tolerated
