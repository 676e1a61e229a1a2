"""The pages made from the sources: fresh, and with everything in them."""

import subprocess
import sys
from typing import Any

import pytest
from chart_values import Value, page, values_of
from custom_resource import page as page_of_resource

from tests.job_schema import CRD
from tests.paths import ROOT

VALUES = ROOT / "charts" / "elastic-pytorch-operator" / "values.yaml"

SOME = """# About the file.

# How many,
# in all.
count: 2

group:
  # Its tag.
  tag: ""

# What it takes.
resources:
  limits:
    memory: 1Gi
"""


def test_pages_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "hack" / "reference"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{done.stderr}run `make docs`"


def test_each_value_has_its_path_its_default_and_its_comment() -> None:
    assert values_of(SOME) == [
        Value("count", "`2`", "How many, in all."),
        Value("group.tag", '`""`', "Its tag."),
        Value("resources", '`{"limits": {"memory": "1Gi"}}`', "What it takes."),
    ]


def test_page_of_the_chart_has_a_row_for_each_value() -> None:
    text = page("# Chart VERSION for KUBERNETES", {"version": "1.2.3", "kubeVersion": ">=1.30.0-0"}, SOME)
    assert text.startswith("# Chart 1.2.3 for 1.30.0\n")
    assert "| `count` | `2` | How many, in all. |" in text


def fields(schema: dict[str, Any], path: str) -> list[str]:
    found = [f"{path}.{name}" for name in schema.get("properties", {})]
    for name, child in schema.get("properties", {}).items():
        found += fields(child, f"{path}.{name}")
    return found + (fields(schema["items"], f"{path}[]") if isinstance(schema.get("items"), dict) else [])


@pytest.mark.parametrize("part", ["spec", "status"])
def test_page_of_the_api_has_every_field(part: str) -> None:
    text = page_of_resource(CRD)
    schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]
    missing = [field for field in fields(schema, part) if f"`{field}`" not in text]
    assert not missing


def test_rule_stands_once_with_the_field_that_it_is_about_and_with_its_words() -> None:
    refusals = [line for line in page_of_resource(CRD).splitlines() if line.startswith("- `")]
    assert len(refusals) == len(set(refusals))
    assert not [line for line in refusals if line.startswith("- `metadata.name.")]
    bounds = "must be greater than or equal to minReplicas (N), not N: raise maxReplicas or lower minReplicas"
    assert f"- `spec.maxReplicas`: {bounds}" in refusals
