"""Templates have the fields of jobs, but what is each job's own, and the examples are valid."""

from pathlib import Path
from typing import Any

import jsonschema
import yaml
from elastic_pytorch_operator.api.names import TEMPLATE_KIND
from elastic_pytorch_operator.spec.job import parse_job
from elastic_pytorch_operator.spec.platform.job_template import NOT_OF_TEMPLATES, usable_spec

from tests.faults import assert_none, fault_of
from tests.job_schema import SCHEMA as JOB
from tests.operator.builders import a_manifest
from tests.paths import ROOT, TEMPLATES

FILE = ROOT / "crds" / f"{TEMPLATE_KIND.lower()}s.yaml"
CRD: dict[str, Any] = yaml.safe_load(FILE.read_text())
(VERSION,) = CRD["spec"]["versions"]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]
SPEC: dict[str, Any] = SCHEMA["properties"]["spec"]


def test_names_are_those_of_the_contract() -> None:
    spec = CRD["spec"]
    assert CRD["metadata"]["name"] == f"{TEMPLATE_KIND.lower()}s.elasticpytorch.dev"
    found = (spec["group"], spec["names"]["kind"], spec["scope"])
    assert found == ("elasticpytorch.dev", TEMPLATE_KIND, "Cluster")


def test_template_has_the_fields_of_jobs_but_what_is_each_jobs_own() -> None:
    assert {*SPEC["properties"], *NOT_OF_TEMPLATES} == set(JOB["properties"]["spec"]["properties"])
    assert not {*SPEC["properties"]} & {*NOT_OF_TEMPLATES}


def test_spec_is_immutable() -> None:
    (rule,) = SPEC["x-kubernetes-validations"]
    assert (rule["rule"], rule["message"]) == (
        "self == oldSelf",
        "field is immutable: make a template of another name",
    )


def test_nothing_is_filled_in() -> None:
    """A default of the API server would be no word of the platform's team."""
    assert "default:" not in FILE.read_text()


def test_container_that_trains_has_the_name_by_which_it_is_merged() -> None:
    containers = SPEC["properties"]["template"]["properties"]["spec"]["properties"]["containers"]
    assert "self.exists(container, container.name == 'pytorch')" in [
        rule["rule"] for rule in containers["x-kubernetes-validations"]
    ]


def admits(spec: dict[str, Any]) -> bool:
    return jsonschema.Draft7Validator(SCHEMA).is_valid({"spec": spec})


def test_values_that_no_job_could_have_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"failurePolicy": {"maxFailures": -1}},
        {"failurePolicy": {"onPodLoss": "Restart"}},
        {"failurePolicy": {"rules": [{"onExitCodes": {"operator": "In", "values": [1]}}]}},
        {"template": {"spec": {"containers": []}}},
        {"activeDeadlineSeconds": "two"},
    ]
    assert_none(str(spec) for spec in wrong if admits(spec))


def test_template_need_not_be_whole() -> None:
    parts: list[dict[str, Any]] = [
        {},
        {"scheduling": {"extraWorkers": {}}},
        {"template": {"spec": {"tolerations": []}}},
    ]
    assert_none(str(spec) for spec in parts if not admits(spec))


def check_example(file: Path) -> None:
    template = yaml.safe_load(file.read_text())
    jsonschema.validate(template, SCHEMA)
    assert (template["kind"], template["metadata"]["name"]) == (TEMPLATE_KIND, file.stem)
    own = {"spec": {"containers": [{"name": "pytorch", "args": ["train.py"]}]}}
    manifest = a_manifest(minimum=None, maximum=None, templateRef={"name": file.stem}, template=own)
    kept = {"template": {"name": file.stem, "uid": "uid"}}
    job = parse_job({**manifest, "status": kept}, templates={"uid": usable_spec(template)})
    (container,) = job.template["spec"]["containers"]
    assert container["args"] == ["train.py"]
    assert container["image"]
    gpus = container["resources"].get("limits", {}).get("nvidia.com/gpu", 1)
    assert job.nproc_per_node == str(gpus)


def test_examples_make_jobs_of_a_few_lines() -> None:
    assert_none(
        f"{file.name}: {fault}" for file in TEMPLATES for fault in fault_of(check_example, file)
    )


def test_there_is_an_example_for_each_sort_of_nodes() -> None:
    assert [file.stem for file in TEMPLATES] == ["cpu", "gpu-1", "gpu-8", "spot"]
