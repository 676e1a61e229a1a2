"""Templates that no pod can be made from, and the field that is named."""

from typing import Any

import pytest
from elastic_pytorch_operator.spec.pod_template import find_problem


def with_container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "a"}, {"name": "pytorch", **fields}]}}


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"spec": "x"}, "spec"),
        ({"metadata": {"labels": ["a"]}, "spec": {}}, "metadata.labels"),
        ({"spec": {"containers": {"name": "pytorch"}}}, "spec.containers"),
        ({"spec": {"containers": ["pytorch"]}}, "spec.containers"),
        ({"spec": {"volumes": {"name": "data"}}}, "spec.volumes"),
        ({"spec": {"tolerations": ["gpu"]}}, "spec.tolerations"),
        ({"spec": {"affinity": {"nodeAffinity": []}}}, "spec.affinity.nodeAffinity"),
        (
            {"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": {}}}}},
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        ),
        ({"spec": {"terminationGracePeriodSeconds": "30s"}}, "spec.terminationGracePeriodSeconds"),
        (with_container(env={"A": "1"}), "spec.containers[1].env"),
        (with_container(env=[{"name": "A"}, {"value": "1"}]), "spec.containers[1].env[1].name"),
        (with_container(volumeMounts="data"), "spec.containers[1].volumeMounts"),
    ],
)
def test_problem_is_named(template: dict[str, Any], path: str) -> None:
    found = find_problem(template)
    assert found is not None
    assert found[0] == path


def test_whatever_the_operator_does_not_touch_is_left_to_the_api_server() -> None:
    assert find_problem({"spec": {"containers": [{"name": "pytorch", "ports": "all"}], "nodeName": 7}}) is None
    assert find_problem({"spec": {"containers": [{"name": "pytorch", "env": None}], "volumes": None}}) is None
