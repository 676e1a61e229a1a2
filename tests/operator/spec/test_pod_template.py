from typing import Any

import pytest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.pod_template import check_template


def with_container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "a"}, {"name": "pytorch", **fields}]}}


TERMS = (
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
)


def with_terms(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
    }
    return {"spec": {"affinity": {"nodeAffinity": required}}}


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"metadata": {"labels": ["a"]}, "spec": {}}, "metadata.labels"),
        ({"spec": {"containers": {"name": "pytorch"}}}, "spec.containers"),
        ({"spec": {"tolerations": ["gpu"]}}, "spec.tolerations[0]"),
        (
            {
                "spec": {
                    "affinity": {
                        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": {}}
                    }
                }
            },
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        ),
        ({"spec": {"volumes": [{"name": "a"}, {"name": ["b"]}]}}, "spec.volumes[1].name"),
        ({"spec": {"nodeSelector": ["gpu"]}}, "spec.nodeSelector"),
        ({"spec": {"schedulingGates": {"name": "mine"}}}, "spec.schedulingGates"),
        ({"spec": {"securityContext": []}}, "spec.securityContext"),
        ({"spec": {"priorityClassName": {"high": 1}}}, "spec.priorityClassName"),
        ({"spec": {"overhead": "1Mi"}}, "spec.overhead"),
        ({"spec": {"resources": {"limits": []}}}, "spec.resources.limits"),
        (
            {"spec": {"initContainers": [{"resources": {"requests": "1"}}]}},
            "spec.initContainers[0].resources.requests",
        ),
        (with_terms({}, {"matchFields": {}}), f"{TERMS}[1].matchFields"),
        (with_terms({"matchExpressions": [{"key": ["a"]}]}), f"{TERMS}[0].matchExpressions[0].key"),
        (
            with_terms({"matchExpressions": [{"values": "a"}]}),
            f"{TERMS}[0].matchExpressions[0].values",
        ),
        (
            {"spec": {"terminationGracePeriodSeconds": 10**7 + 1}},
            "spec.terminationGracePeriodSeconds",
        ),
        ({"spec": {"tolerations": [{"operator": "Exists"}] * 201}}, "spec.tolerations"),
        (with_terms(*[{}] * 101), TERMS),
        (
            with_terms(
                {"matchExpressions": [{"key": "a"}] * 60, "matchFields": [{"key": "a"}] * 40}
            ),
            TERMS,
        ),
        (with_container(resources={"limits": "1"}), "spec.containers[1].resources.limits"),
        (with_container(env=[{"name": "A"}, {"value": "1"}]), "spec.containers[1].env[1].name"),
        (with_container(volumeMounts="data"), "spec.containers[1].volumeMounts"),
    ],
)
def test_problem_is_named(template: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        check_template(template)
    assert refused.value.path == f"spec.template.{path}"


def test_whatever_the_operator_does_not_touch_is_left_to_the_api_server() -> None:
    check_template({"spec": {"containers": [{"name": "pytorch", "ports": "all"}], "nodeName": 7}})
    check_template({"spec": {"containers": [{"name": "pytorch", "env": None}], "volumes": None}})


def test_many_rules_for_nodes_are_allowed() -> None:
    spec = with_terms({"matchExpressions": [{"key": "a"}] * 99})["spec"]
    containers = [{"name": "pytorch"}]
    check_template(
        {"spec": {**spec, "tolerations": [{"operator": "Exists"}] * 200, "containers": containers}}
    )


def test_other_containers_may_be_restarted_in_place() -> None:
    sidecar = {"name": "logs", "restartPolicy": "Always", "restartPolicyRules": []}
    check_template(
        {"spec": {"containers": [{"name": "pytorch"}, sidecar], "initContainers": [sidecar]}}
    )
