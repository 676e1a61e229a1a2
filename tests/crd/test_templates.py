"""The resource definitions of templates have the fields of jobs, but what is each job's own, and the examples are valid by them."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from elastic_pytorch_operator.spec.job import parse_job
from elastic_pytorch_operator.spec.platform.job_template import KINDS, NOT_OF_TEMPLATES, TemplateRef, keep

from tests.faults import assert_none, fault_of
from tests.job_schema import SCHEMA as JOB
from tests.operator.builders import a_manifest
from tests.paths import ROOT, TEMPLATES

FILES = {kind: ROOT / "crds" / f"{kind.lower()}s.yaml" for kind in KINDS}
CRDS: dict[str, dict[str, Any]] = {kind: yaml.safe_load(file.read_text()) for kind, file in FILES.items()}


def schema_of(kind: str) -> dict[str, Any]:
    (version,) = CRDS[kind]["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def spec_of(kind: str) -> dict[str, Any]:
    spec: dict[str, Any] = schema_of(kind)["properties"]["spec"]
    return spec


@pytest.mark.parametrize(("kind", "scope"), [(KINDS[0], "Namespaced"), (KINDS[1], "Cluster")])
def test_names_are_those_of_the_contract(kind: str, scope: str) -> None:
    spec = CRDS[kind]["spec"]
    assert CRDS[kind]["metadata"]["name"] == f"{kind.lower()}s.elasticpytorch.dev"
    assert (spec["group"], spec["names"]["kind"], spec["scope"]) == ("elasticpytorch.dev", kind, scope)


@pytest.mark.parametrize("kind", KINDS)
def test_template_has_the_fields_of_jobs_but_what_is_each_jobs_own(kind: str) -> None:
    assert {*spec_of(kind)["properties"], *NOT_OF_TEMPLATES} == set(JOB["properties"]["spec"]["properties"])
    assert not {*spec_of(kind)["properties"]} & {*NOT_OF_TEMPLATES}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_filled_in(kind: str) -> None:
    """A default of the API server would be no word of the platform's team."""
    assert "default:" not in FILES[kind].read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_container_that_trains_has_the_name_by_which_it_is_merged(kind: str) -> None:
    containers = spec_of(kind)["properties"]["template"]["properties"]["spec"]["properties"]["containers"]
    assert "self.exists(container, container.name == 'pytorch')" in [
        rule["rule"] for rule in containers["x-kubernetes-validations"]
    ]


def admits(kind: str, spec: dict[str, Any]) -> bool:
    return jsonschema.Draft7Validator(schema_of(kind)).is_valid({"spec": spec})


def test_values_that_no_job_could_have_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"failurePolicy": {"maxFailures": -1}},
        {"failurePolicy": {"onPodLoss": "Restart"}},
        {"failurePolicy": {"rules": [{"onExitCodes": {"operator": "In", "values": [1]}}]}},
        {"template": {"spec": {"containers": []}}},
        {"spares": "two"},
    ]
    assert_none(f"{kind}: {spec}" for kind in KINDS for spec in wrong if admits(kind, spec))


def test_template_need_not_be_whole() -> None:
    parts: list[dict[str, Any]] = [{}, {"scheduling": {"gang": {}}}, {"template": {"spec": {"tolerations": []}}}]
    assert_none(f"{kind}: {spec}" for kind in KINDS for spec in parts if not admits(kind, spec))


def check_example(file: Path) -> None:
    template = yaml.safe_load(file.read_text())
    jsonschema.validate(template, schema_of(template["kind"]))
    ref = TemplateRef(template["kind"], template["metadata"]["name"])
    assert ref.name == file.stem
    own = {"spec": {"containers": [{"name": "pytorch", "args": ["train.py"]}]}}
    manifest = a_manifest(minimum=None, maximum=None, templateRef=ref._asdict(), template=own)
    job = parse_job({**manifest, "status": {"template": keep(ref, template)}})
    (container,) = job.template["spec"]["containers"]
    assert container["args"] == ["train.py"]
    assert container["image"]
    gpus = container["resources"].get("limits", {}).get("nvidia.com/gpu", 1)
    assert job.nproc_per_node == str(gpus)


def test_examples_make_jobs_of_a_few_lines() -> None:
    assert_none(f"{file.name}: {fault}" for file in TEMPLATES for fault in fault_of(check_example, file))


def test_there_is_an_example_for_each_sort_of_nodes() -> None:
    assert [file.stem for file in TEMPLATES] == ["cpu", "gpu-1", "gpu-8", "spot"]
