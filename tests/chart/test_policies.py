"""The chart's admission policies: which, where and what follows; tests/e2e/api runs them."""

from typing import Any

import pytest

from tests.chart.chart_rendering import needs_helm, only, render, template

NAME = "elastic-pytorch-operator"
TEMPLATES = "clusterelasticpytorchjobtemplates"
REQUEST = ('policies.imageRegistries.registries=["a.example.com","b.example.com/ml"]',)
ON_REQUEST = {
    "queue-required": (
        "kueue.enabled=true",
        "policies.queueChanges.enabled=false",
        "policies.queueRequired.enabled=true",
    ),
    "ttl-required": ("policies.ttlRequired.enabled=true",),
    "replica-limit": ("policies.replicaLimit.enabled=true",),
    "image-registries": REQUEST,
}


def policies(*settings: str) -> dict[str, dict[str, Any]]:
    """The specs of the policies, by the ends of their names; each has one binding."""
    objects = render(*settings)
    found = {
        o["metadata"]["name"].removeprefix(f"{NAME}-"): o
        for o in objects
        if o["kind"] == "ValidatingAdmissionPolicy"
    }
    bound = [
        o["spec"]["policyName"] for o in objects if o["kind"] == "ValidatingAdmissionPolicyBinding"
    ]
    assert sorted(bound) == sorted(policy["metadata"]["name"] for policy in found.values())
    return {name: policy["spec"] for name, policy in found.items()}


def binding(policy: str, *settings: str) -> dict[str, Any]:
    spec: dict[str, Any] = only(
        render(*settings), "ValidatingAdmissionPolicyBinding", f"{NAME}-{policy}"
    )["spec"]
    return spec


@needs_helm
def test_changes_of_queues_are_checked_wherever_there_are_queues() -> None:
    assert set(policies("kueue.enabled=true")) == {"queue-changes"}
    assert set(policies("kueue.enabled=true", "policies.queueChanges.enabled=false")) == set()


@needs_helm
@pytest.mark.parametrize("name", ON_REQUEST)
def test_other_policies_are_made_on_request(name: str) -> None:
    (policy,) = policies(*ON_REQUEST[name]).items()
    assert policy[0] == name
    assert policy[1]["failurePolicy"] == "Fail"
    (rule,) = policy[1]["matchConstraints"]["resourceRules"]
    scaled = name == "replica-limit"  # kubectl scale and autoscalers change nothing else
    # Of which a job may leave to its template.
    templates = name in ("ttl-required", "image-registries")
    assert rule["resources"] == [
        "elasticpytorchjobs",
        *(["elasticpytorchjobs/scale"] if scaled else []),
        *([TEMPLATES] if templates else []),
    ]
    assert binding(name, *ON_REQUEST[name]) == {
        "policyName": f"{NAME}-{name}",
        "validationActions": ["Deny"],
    }


@needs_helm
def test_no_policy_is_about_what_the_operator_writes() -> None:
    settings = [
        setting
        for group in ON_REQUEST.values()
        for setting in group
        if "queueChanges" not in setting
    ]
    rules = [
        rule
        for spec in policies(*settings).values()
        for rule in spec["matchConstraints"]["resourceRules"]
    ]
    assert len(rules) == 1 + len(ON_REQUEST)
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert resources == {"elasticpytorchjobs", "elasticpytorchjobs/scale", TEMPLATES}
    assert {operation for rule in rules for operation in rule["operations"]} == {"CREATE", "UPDATE"}


@needs_helm
def test_policies_hold_in_the_namespaces_that_the_values_name() -> None:
    on = "policies.ttlRequired.enabled=true"
    watched = binding("ttl-required", on, 'watchNamespaces=["a","b"]')["matchResources"][
        "namespaceSelector"
    ]
    assert watched == {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
        ]
    }
    selector = 'policies.namespaceSelector={"matchLabels":{"team":"ml"}}'
    chosen = binding("ttl-required", on, 'watchNamespaces=["a","b"]', selector)["matchResources"][
        "namespaceSelector"
    ]
    assert chosen == {"matchLabels": {"team": "ml"}}


@needs_helm
def test_violations_may_be_reported_instead_of_refused() -> None:
    on = "policies.ttlRequired.enabled=true"
    reported = binding(
        "ttl-required", on, 'policies.ttlRequired.validationActions=["Warn","Audit"]'
    )
    assert reported["validationActions"] == ["Warn", "Audit"]


@needs_helm
def test_a_registry_is_no_beginning_of_another_ones_name() -> None:
    prefixes = policies(*REQUEST)["image-registries"]["variables"][0]
    assert prefixes == {"name": "prefixes", "expression": "['a.example.com/', 'b.example.com/ml/']"}


@needs_helm
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (
            "policies.queueRequired.enabled=true",
            "policies.queueRequired.enabled is true and kueue.enabled is not",
        ),
        (
            'policies.ttlRequired.validationActions=["Deny","Warn"]',
            "policies.ttlRequired.validationActions",
        ),
        ("policies.ttlRequired.validationActions=[]", "policies.ttlRequired.validationActions"),
        ("policies.ttlRequired.maxSeconds=-1", "policies.ttlRequired.maxSeconds"),
        ("""policies.imageRegistries.registries=["a'b"]""", "policies.imageRegistries.registries"),
        (
            'policies.imageRegistries.registries=["a.example.com/"]',
            "policies.imageRegistries.registries",
        ),
    ],
)
def test_values_that_make_no_policy_are_refused(setting: str, words: str) -> None:
    result = template(setting)
    assert result.returncode != 0
    assert words in result.stderr.replace("/", ".")
