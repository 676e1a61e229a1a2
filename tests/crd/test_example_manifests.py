"""The manifests of tests/e2e/api/test_admission.py, as far as no cluster is needed."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from elastic_pytorch_operator.spec.job import parse_job

from tests.faults import assert_none, fault_of
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
    "may not be set",
    "must not contain ",
    "must be greater than or equal to ",
    "must be less than or equal to ",
    "each must be",
    "must be at most",
    "must be a number from",
    "must be from ",
    "must be a quantity",
    "must be an absolute path",
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


@cache
def read(path: Path) -> dict[str, Any]:
    """A manifest, by libyaml, where PyYAML has it: a tenth of the time. Not to be changed."""
    manifest: dict[str, Any] = yaml.load(
        path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return manifest


def test_manifests_are_jobs() -> None:
    kind = ("elasticpytorch.dev/v1alpha1", "ElasticPyTorchJob")
    manifests = {path.name: read(path) for path in (*BAD, *GOOD, *FAILING)}
    assert_none(
        name
        for name, manifest in manifests.items()
        if (manifest["apiVersion"], manifest["kind"]) != kind or not manifest["metadata"]["name"]
    )


def test_good_manifests_and_those_that_fail_only_later_are_valid() -> None:
    assert GOOD
    assert FAILING
    assert_none(
        f"{path.name}: {fault.message}"
        for path in (*GOOD, *FAILING)
        for fault in VALIDATOR.iter_errors(read(path))
    )


def faults_of(path: Path) -> Iterator[str]:
    """What is wrong with a bad manifest: the schema or a rule refuses it where it says."""
    first = path.read_text().partition("\n")[0]
    expected = first.removeprefix(EXPECT)
    if not first.startswith(EXPECT) or len(expected) <= 10:
        yield f"its first line does not begin with {EXPECT}and words of the refusal"
    # Of which the schema alone knows nothing, whatever else is wrong.
    if expected.startswith("unknown field"):
        return
    places = {
        error.json_path.removeprefix("$").removeprefix(".")
        for error in VALIDATOR.iter_errors(read(path))
    }
    if any(words in expected for words in BEYOND_JSON_SCHEMA):
        if places:
            yield f"the schema refuses {places}, not the rule: {expected}"
    elif not places:
        yield f"the schema admits it: {expected}"
    elif expected.startswith("spec") and not any(expected.startswith(place) for place in places):
        yield f"the schema refuses {places}: {expected}"


def test_bad_manifests_are_refused_by_the_schema_alone_unless_it_takes_a_rule() -> None:
    assert len(BAD) > 90
    assert_none(f"{path.name}: {fault}" for path in BAD for fault in faults_of(path))


def check_example(path: Path) -> None:
    manifest = read(path)
    VALIDATOR.validate(manifest)
    spec, pod = manifest["spec"], manifest["spec"]["template"]["spec"]
    assert not any("hostPath" in volume for volume in pod["volumes"])
    claims = {
        template["metadata"]["name"]: template["spec"] for template in spec["sharedVolumeClaims"]
    }
    [container] = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        *claims,
        *(volume["name"] for volume in pod["volumes"]),
    }
    modes = [mode for claim in claims.values() for mode in claim["accessModes"]]
    assert modes == ["ReadWriteMany" if spec["replicas"] > 1 else "ReadWriteOnce"]
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    assert re.search(
        r"(^|/)elastic-pytorch-(worker|worker-lightning|deepspeed|torchtitan|megatron):(dev|gpu)$",
        container["image"],
    )


def test_examples_are_valid_and_ask_for_nothing_that_a_cluster_need_not_have() -> None:
    assert_none(
        f"{path}: {fault}" for path in EXAMPLE_JOBS for fault in fault_of(check_example, path)
    )


def check_example_for_gpus(path: Path) -> None:
    job = parse_job(read(path))
    [container] = job.template["spec"]["containers"]
    assert "nprocPerNode" not in path.read_text().replace("spec.nprocPerNode", "")
    assert job.nproc_per_node == str(container["resources"]["limits"]["nvidia.com/gpu"])
    pod = a_worker_pod(job, 0)
    [training] = pod["spec"]["containers"]
    assert "/dev/shm" in [mount["mountPath"] for mount in training["volumeMounts"]]
    assert (
        "has run on one GPU in local mode (docs/use/gpu.md); "
        "this manifest has not been run on a cluster" in path.read_text()
    )
    script = (ROOT / training["args"][0].removeprefix("/")).read_text()
    assert "torch.cuda.is_available()" in script
    assert "torch.cuda.set_device(" in script
    assert '"nccl"' in script


def test_examples_for_gpus_leave_processes_and_memory_to_the_operator() -> None:
    assert GPU_EXAMPLES
    assert_none(
        f"{path}: {fault}"
        for path in GPU_EXAMPLES
        for fault in fault_of(check_example_for_gpus, path)
    )


def test_bad_manifests_have_names_of_their_own() -> None:
    names = [read(path)["metadata"]["name"] for path in [*BAD, *FAILING]]
    assert len(names) == len(set(names))


def test_full_manifest_sets_every_field_to_another_value_than_its_default() -> None:
    (full,) = [read(path)["spec"] for path in GOOD if path.stem == "full"]
    spec = dict(SCHEMA["properties"]["spec"]["properties"])
    assert set(full) == set(spec) - {"templateRef"}
    for name, schema in spec.items():
        for inner, inner_schema in schema.get("properties", {}).items():
            # Two of the other fields are for the default backend only.
            if "default" in inner_schema and (name, inner) != ("rendezvous", "backend"):
                assert full[name][inner] != inner_schema["default"], f"{name}.{inner}"
        if name in full:
            assert full[name] != schema.get("default"), name
