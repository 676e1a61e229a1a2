"""Which nodes could take a pod."""

from typing import Any

import pytest
from elastic_pytorch_operator.model.announced_ends import Taint
from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.planning.workers.placement import nodes_for

NODE = NodeView(
    "gpu-0",
    labels={"zone": "a", "generation": "9"},
    taints=(Taint("gpu", "yes", "NoSchedule"),),
    allocatable={"cpu": "7910m", "memory": "32Gi", "nvidia.com/gpu": "8"},
)
TOLERATION = {"key": "gpu", "operator": "Exists"}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return required({"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]})


def name(operator: str, value: str) -> dict[str, Any]:
    return required({"matchFields": [{"key": "metadata.name", "operator": operator, "values": [value]}]})


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
    assert list(nodes_for([NODE], {"tolerations": [TOLERATION], **spec})) == ([NODE] if fits else [])


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


@pytest.mark.parametrize("node", [NodeView("n", ready=False), NodeView("n", unschedulable=True)])
def test_node_that_takes_no_pods(node: NodeView) -> None:
    assert not any(nodes_for([node], {}))
