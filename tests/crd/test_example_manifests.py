"""The manifests that tests/e2e/api/test_admission.py applies, as far as they can be checked without a cluster."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from elastic_pytorch_operator.spec.job import parse_job

from tests.job_schema import SCHEMA, VALIDATOR
from tests.operator.builders import a_worker_pod
from tests.paths import EXAMPLE_JOBS, ROOT

BAD = sorted((ROOT / "tests" / "manifests" / "bad").glob("*.yaml"))
GOOD = sorted((ROOT / "tests" / "manifests" / "good").glob("*.yaml"))
FAILING = sorted((ROOT / "tests" / "manifests" / "failing").glob("*.yaml"))
GPU_EXAMPLES = [path for path in EXAMPLE_JOBS if path.stem == "job-gpu"]
EXPECT = "# expect: "

# What only CEL refuses, or the API server's own understanding of lists and unknown fields.
BEYOND_JSON_SCHEMA = (
    "Required value: set the number",
    "spec.template: Required value",
    "spec.template.spec.containers: Required value",
    "may not be set ",
    "must not contain ",
    "must be greater than or equal to ",
    "must be less than or equal to ",
    "each must be",
    "must be at most",
    "must be a number from",
    "must be from ",
    "must be a quantity",
    "must be operator if",
    "must start with",
    "must be 0, 1, 2 or 3",
    "must be set with",
    "must be set unless",
    "must contain ",
    "must divide",
    "must have exactly one",
    "Duplicate value",
)


def name_of(path: Path) -> str:
    return path.stem


@cache
def read(path: Path) -> dict[str, Any]:
    """A manifest, by libyaml, where PyYAML has it: a tenth of the time. Not to be changed."""
    manifest: dict[str, Any] = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return manifest


@pytest.mark.parametrize("path", [*BAD, *GOOD], ids=name_of)
def test_manifest_is_a_job(path: Path) -> None:
    manifest = read(path)
    assert manifest["apiVersion"] == "elasticpytorch.dev/v1alpha1"
    assert manifest["kind"] == "ElasticPyTorchJob"
    assert manifest["metadata"]["name"]


@pytest.mark.parametrize("path", [*GOOD, *FAILING], ids=name_of)
def test_good_manifest_and_one_that_fails_only_later_are_valid(path: Path) -> None:
    VALIDATOR.validate(read(path))


@pytest.mark.parametrize("path", BAD, ids=name_of)
def test_bad_manifest_says_what_is_expected(path: Path) -> None:
    first = path.read_text().partition("\n")[0]
    assert first.startswith(EXPECT)
    assert len(first) > len(EXPECT) + 10


@pytest.mark.parametrize("path", BAD, ids=name_of)
def test_bad_manifest_is_refused_by_the_schema_alone_unless_it_takes_a_rule(path: Path) -> None:
    text = path.read_text()
    expected = text.partition("\n")[0].removeprefix(EXPECT)
    valid = VALIDATOR.is_valid(read(path))
    if not expected.startswith("unknown field"):  # of which the schema alone knows nothing, whatever else is wrong
        assert valid is any(words in expected for words in BEYOND_JSON_SCHEMA)


@pytest.mark.parametrize("path", EXAMPLE_JOBS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_example_is_valid_and_asks_for_nothing_that_a_cluster_need_not_have(path: Path) -> None:
    manifest = read(path)
    VALIDATOR.validate(manifest)
    spec, pod = manifest["spec"], manifest["spec"]["template"]["spec"]
    assert not any("hostPath" in volume for volume in pod["volumes"])
    claims = {template["metadata"]["name"]: template["spec"] for template in spec["sharedVolumeClaims"]}
    [container] = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {*claims, *(volume["name"] for volume in pod["volumes"])}
    modes = [mode for claim in claims.values() for mode in claim["accessModes"]]
    assert modes == ["ReadWriteMany" if spec["replicas"] > 1 else "ReadWriteOnce"]
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    assert re.search(
        r"(^|/)elastic-pytorch-(worker|worker-lightning|deepspeed|torchtitan|megatron):(dev|gpu)$", container["image"]
    )


@pytest.mark.parametrize("path", GPU_EXAMPLES, ids=lambda path: path.parent.name)
def test_example_for_gpus_leaves_processes_and_shared_memory_to_the_operator_and_says_that_it_was_not_run(path: Path) -> None:
    job = parse_job(read(path))
    [container] = job.template["spec"]["containers"]
    assert "nprocPerNode" not in path.read_text().replace("spec.nprocPerNode", "")
    assert job.nproc_per_node == str(container["resources"]["limits"]["nvidia.com/gpu"])
    pod = a_worker_pod(job, 0)
    [training] = pod["spec"]["containers"]
    assert "/dev/shm" in [mount["mountPath"] for mount in training["volumeMounts"]]
    assert "has run on one GPU in local mode (docs/use/gpu.md); this manifest has not been run on a cluster" in path.read_text()
    script = (ROOT / training["args"][0].removeprefix("/")).read_text()
    assert "torch.cuda.is_available()" in script
    assert "torch.cuda.set_device(" in script
    assert '"nccl"' in script


def test_bad_manifests_have_names_of_their_own() -> None:
    names = [read(path)["metadata"]["name"] for path in [*BAD, *FAILING]]
    assert len(names) == len(set(names))


def test_full_manifest_sets_every_field_to_another_value_than_its_default() -> None:
    (full,) = [read(path)["spec"] for path in GOOD if path.stem == "full"]
    spec = dict(SCHEMA["properties"]["spec"]["properties"])
    assert set(full) == set(spec) - {"templateRef"}
    assert set(full["torchrun"]) == set(spec["torchrun"]["properties"])
    for name, schema in spec.items():
        for inner, inner_schema in schema.get("properties", {}).items():
            # Two of the other fields are for the default backend only.
            if "default" in inner_schema and (name, inner) != ("rendezvous", "backend"):
                assert full[name][inner] != inner_schema["default"], f"{name}.{inner}"
        if name in full:
            assert full[name] != schema.get("default"), name
