"""The tables of the fields: every one with its level, and when it may change."""

from typing import Any

import pytest
from field_table import fields, section

from tests.job_schema import CRD
from tests.paths import ROOT

EXPLANATION = (ROOT / "docs" / "reference" / "api-versions.md").read_text()
ROWS = [row.strip("| ").split(" | ") for row in section(CRD).splitlines() if row.startswith("| `")]


def definition(spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    parts = {"spec": {"properties": spec}, "status": {"properties": status}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {"schema": {"openAPIV3Schema": {"properties": parts}}, "subresources": {"scale": scale}}
    return {"spec": {"versions": [version]}}


def paths_of(schema: dict[str, Any], path: str) -> list[str]:
    """Every field below a schema, but for those of Kubernetes' own objects."""
    found = []
    for name, child in schema.get("properties", {}).items():
        found.append(f"{path}.{name}")
        if "x-kubernetes-preserve-unknown-fields" not in child:
            found += paths_of(child, f"{path}.{name}")
            found += paths_of(child.get("items", {}), f"{path}.{name}[]")
    return found


@pytest.mark.parametrize("part", ["spec", "status"])
def test_tables_have_each_field_or_one_that_holds_it(part: str) -> None:
    schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]
    listed, known = [row[0].strip("`") for row in ROWS if row[0].startswith(f"`{part}.")], paths_of(schema, part)
    assert listed == [path for path in known if path in listed]
    assert not [path for path in known if not path.startswith(tuple(listed))]


def test_page_explains_each_level_and_each_time_of_a_change() -> None:
    explained = {row.strip("| ").split(" | ")[0] for row in EXPLANATION.splitlines() if row.startswith("| ")}
    assert {row[1] for row in ROWS} <= explained
    for when in {row[2] for row in ROWS if len(row) > 2}:
        assert f"- **{when}**: " in EXPLANATION


def test_level_and_change_are_read_from_the_schema_and_what_a_field_inherits_is_not_repeated() -> None:
    pod = {"x-kubernetes-preserve-unknown-fields": True, "properties": {"spec": {}}}
    whole = {"description": "Options. Immutable.", "properties": {"list": {"items": {"properties": {"one": {}}}}}}
    text = section(
        definition(
            {
                "replicas": {},
                "pod": {**pod, "description": "Immutable unless the condition `Suspended` is True."},
                "options": whole,
            },
            {"replicas": {}, "state": {"description": "One word, for people."}, "message": {}, "round": {}},
        ),
    )
    assert [line for line in text.splitlines() if line.startswith("| `")] == [
        "| `spec.replicas` | fixed | at any time |",
        "| `spec.pod` | Kubernetes | while suspended |",
        "| `spec.options` | v1beta1 | never |",
        "| `status.replicas` | fixed |",
        "| `status.state` | people |",
        "| `status.message` | people |",
        "| `status.round` | v1beta1 |",
    ]


def test_field_may_change_less_than_the_one_that_holds_it() -> None:
    path = {"description": "A folder. Immutable unless the condition `Suspended` is True."}
    found = fields("spec", {"properties": {"policy": {"description": "How.", "properties": {"path": path, "seconds": {}}}}})
    assert [(name, when) for name, _, when in found] == [
        ("spec.policy", "at any time"),
        ("spec.policy.path", "while suspended"),
        ("spec.policy.seconds", "at any time"),
    ]
