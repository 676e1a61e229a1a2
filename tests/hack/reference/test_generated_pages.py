"""The pages made from the sources are fresh, and have everything in them."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from custom_resource import page as page_of_resource
from field_table import ALWAYS, NEVER, SUSPENDED, fields, section
from python_api import INTERNAL, SUBJECTS, attributes, definition, exported, members, methods
from python_api import page as page_of_python
from screens import draw_screens

from tests.job_schema import CRD
from tests.paths import ROOT

SCHEMAS = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]


def test_pages_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "hack" / "reference"), "--check"]
    path = f"{ROOT}:{ROOT / 'hack'}:{os.environ.get('PYTHONPATH', '')}"
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{done.stderr}run `make docs`"


def paths_of(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Every field below a schema, but for those of Kubernetes' own objects."""
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        if "x-kubernetes-preserve-unknown-fields" not in child:
            yield from paths_of(child, f"{path}.{name}")
            yield from paths_of(child.get("items", {}), f"{path}.{name}[]")


def test_page_of_the_api_has_every_field_with_its_level() -> None:
    text = page_of_resource(CRD)
    levels = [row.strip("| ").split(" | ") for row in section(CRD).splitlines()]
    rows = [row for row in levels if row[0].startswith("`")]
    known = [path for part in ("spec", "status") for path in paths_of(SCHEMAS[part], part)]
    listed = [row[0].strip("`") for row in rows]
    assert not [path for path in known if f"`{path}`" not in text]
    assert listed == [path for path in known if path in listed]
    explanation = (ROOT / "docs" / "reference" / "api-versions.md").read_text()
    explained = {
        row.strip("| ").split(" | ")[0] for row in explanation.splitlines() if row.startswith("| ")
    }
    assert {row[1] for row in rows} <= explained


def test_level_and_change_of_a_field_are_read_from_the_schema() -> None:
    suspended = "Immutable unless the condition `Suspended` is True."
    pod = {
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"spec": {}},
        "description": suspended,
    }
    whole = {
        "description": "Options. Immutable.",
        "properties": {"list": {"items": {"properties": {"one": {}}}}},
    }
    policy = {"description": "How.", "properties": {"path": {"description": suspended}}}
    spec = {"replicas": {}, "pod": pod, "options": whole, "policy": policy}
    status = {"replicas": {}, "state": {"description": "One word, for people."}, "round": {}}
    schema = {"properties": {"spec": {"properties": spec}, "status": {"properties": status}}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {"schema": {"openAPIV3Schema": schema}, "subresources": {"scale": scale}}
    text = section({"spec": {"versions": [version]}})
    assert [line for line in text.splitlines() if line.startswith("| `")] == [
        "| `spec.replicas` | fixed |",
        "| `spec.pod` | Kubernetes |",
        "| `status.replicas` | fixed |",
        "| `status.state` | people |",
    ]
    assert {path: changes for path, _, changes in fields("spec", schema["properties"]["spec"])} == {
        "spec.replicas": ALWAYS,
        "spec.pod": SUSPENDED,
        "spec.options": NEVER,
        "spec.options.list": NEVER,
        "spec.options.list[].one": NEVER,
        "spec.policy": ALWAYS,
        "spec.policy.path": SUSPENDED,
    }


def test_page_of_python_lists_every_exported_name_and_each_has_a_docstring() -> None:
    text = page_of_python()
    listed = [(subject.module, name) for subject in SUBJECTS for name in subject.names]
    names = [
        (module, name)
        for module in {subject.module for subject in SUBJECTS}
        for name in exported(module)
    ]
    assert not [name for name in names if name not in listed or f"\n### {name[1]}\n" not in text]
    nodes = {name: definition(module, name)[1] for module, name in listed}
    described = list(nodes.items()) + [(name, it) for name in nodes for it in members(name)]
    assert not [(name, node.name) for name, node in described if not ast.get_docstring(node)]
    classes = [name for name, node in nodes.items() if isinstance(node, ast.ClassDef)]
    assert not [
        (name, it)
        for name in classes
        for it, (kind, meaning) in attributes(name).items()
        if not (kind or meaning)
    ]
    assert not [
        name
        for name, left_out in INTERNAL.items()
        if not left_out <= {method.name for method in methods(name)}
    ]
    with pytest.raises(LookupError, match="elastic_pytorch does not offer nothing"):
        definition("elastic_pytorch", "nothing")


def test_each_screen_of_the_documentation_shows_what_the_verb_prints_and_fetches_nothing() -> None:
    screens = draw_screens()
    assert set(
        re.findall(
            r"!\[.*\]\(screens/(.*\.svg)\)", (ROOT / "docs" / "use" / "plugin.md").read_text()
        )
    ) == set(screens)
    for name, picture in screens.items():
        assert f"kubectl epj {name.removesuffix('.svg')}" in re.sub(
            r"&#160;|<.*?>", " ", picture
        ), name
        assert "@font-face" not in picture and not re.search(r"url\((?!#)|href", picture), name
