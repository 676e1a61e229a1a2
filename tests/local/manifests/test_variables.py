from typing import Any

import pytest
from elastic_pytorch_local.manifests.config_objects import Config
from elastic_pytorch_local.manifests.variables import container_variables, expand
from elastic_pytorch_operator.spec.fields import InvalidJob

CONFIG: Config = {
    ("ConfigMap", "settings"): {"LR": b"0.1", "SEED": b"7"},
    ("Secret", "token"): {"HUB": b"abc"},
}
POD = {
    "metadata": {"name": "w0", "namespace": "ml", "uid": "u", "labels": {"team": "nlp"}},
    "spec": {"nodeName": "node-0"},
}


def source(**reference: dict[str, Any]) -> dict[str, Any]:
    return {"env": [{"name": "A", "valueFrom": reference}]}


def field(path: str) -> dict[str, Any]:
    return source(fieldRef={"fieldPath": path})


VARIABLES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "nothing": ({}, {}),
    "a value, and no value": (
        {"env": [{"name": "A", "value": "1"}, {"name": "B"}]},
        {"A": "1", "B": ""},
    ),
    "a value of earlier ones": (
        {
            "env": [
                {"name": "A", "value": "$(B)"},
                {"name": "B", "value": "2"},
                {"name": "C", "value": "$(B)/$(B) $$(B)"},
            ]
        },
        {"A": "$(B)", "B": "2", "C": "2/2 $(B)"},
    ),
    "a key": (source(configMapKeyRef={"name": "settings", "key": "LR"}), {"A": "0.1"}),
    "a key of a Secret": (source(secretKeyRef={"name": "token", "key": "HUB"}), {"A": "abc"}),
    "a key that may be missing": (
        source(secretKeyRef={"name": "no", "key": "HUB", "optional": True}),
        {},
    ),
    "all keys, of which one is set": (
        {
            "envFrom": [
                {"configMapRef": {"name": "settings"}},
                {"secretRef": {"name": "token"}, "prefix": "MY_"},
                {"secretRef": {"name": "no", "optional": True}},
            ],
            "env": [{"name": "LR", "value": "1"}],
        },
        {"LR": "1", "SEED": "7", "MY_HUB": "abc"},
    ),
    "the pod's name": (field("metadata.name"), {"A": "w0"}),
    "its namespace": (field("metadata.namespace"), {"A": "ml"}),
    "its node": (field("spec.nodeName"), {"A": "node-0"}),
    "its address": (field("status.podIP"), {"A": "127.0.0.9"}),
    "its account": (field("spec.serviceAccountName"), {"A": "default"}),
    "a label": (field("metadata.labels['team']"), {"A": "nlp"}),
    "an annotation that it has not": (field("metadata.annotations['team']"), {"A": ""}),
    "a field without a value here": (field("status.no"), {}),
}


@pytest.mark.parametrize(("container", "variables"), VARIABLES.values(), ids=VARIABLES)
def test_variables(container: dict[str, Any], variables: dict[str, str]) -> None:
    assert container_variables(POD, container, CONFIG, "127.0.0.9", "c") == variables


@pytest.mark.parametrize("source", ["configMapRef", "secretRef"])
def test_missing_source_is_named(source: str) -> None:
    with pytest.raises(
        InvalidJob,
        match=rf"c\.envFrom\[0\]\.{source}: there is no (ConfigMap|Secret) no: name its YAML file",
    ):
        container_variables(POD, {"envFrom": [{source: {"name": "no"}}]}, CONFIG, "", "c")


@pytest.mark.parametrize(
    ("word", "expanded"),
    [
        ("$(A)/b", "1/b"),
        ("$(NO)", "$(NO)"),
        ("$$(A)", "$(A)"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$(A)$(A)", "11"),
        ("100$", "100$"),
    ],
)
def test_references_in_a_command(word: str, expanded: str) -> None:
    assert expand(word, {"A": "1"}) == expanded
