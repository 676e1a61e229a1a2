"""Objects that release 0.2 has stored, under the definition of this one: on a definition of another name, which no operator watches."""

import json
import os
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.api_requests import Resource
from tests.e2e.job_under_test import run_kubectl
from tests.paths import ROOT
from tests.waiting import until

# One process runs them all: they share a definition, which the first of them creates.
pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("stored-objects")]

ARCHIVE = ROOT / "tests" / "e2e" / "releases" / "0.2.0.tar.xz"
BEFORE = "charts/elastic-pytorch-operator/files/elasticpytorchjobs.yaml"
GROUP = "stored.elasticpytorch.dev"
POD = {"spec": {"containers": [{"name": "pytorch", "image": "registry.invalid/worker"}]}}
# What a job of 0.2 may say that this release would refuse of a new one, or does not know.
STORED: dict[str, dict[str, Any]] = {
    "without-sizes": {},
    "without-replicas": {"maxReplicas": 4},
    "without-a-maximum": {"replicas": 2},
    "with-sizes": {"replicas": 2, "minReplicas": 2, "maxReplicas": 4},
    "long-lived": {"replicas": 2, "ttlSecondsAfterFinished": 4_000_000_000},
    "managed-by-others": {"replicas": 2, "managedBy": "no-domain"},
    "torchrun": {"replicas": 2, "torchrun": {"monitorInterval": "0.5", "shutdownTimeout": 20, "role": "trainer"}},
}


def renamed(text: str) -> str:
    definition: dict[str, Any] = yaml.safe_load(text)
    definition["metadata"] = {"name": f"storedjobs.{GROUP}"}
    names = {"kind": "StoredJob", "listKind": "StoredJobList", "plural": "storedjobs", "singular": "storedjob"}
    definition["spec"] |= {"group": GROUP, "names": names}
    return json.dumps(definition)


def read_before() -> str:
    with tarfile.open(ARCHIVE) as archive:
        file = archive.extractfile(BEFORE)
        assert file is not None
        return file.read().decode()


def job(name: str, spec: dict[str, Any]) -> str:
    manifest = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "StoredJob", "metadata": {"name": name}}
    return json.dumps(manifest | {"spec": {"template": POD, **spec}})


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """A namespace with the jobs as 0.2 has stored them, whose definition is by now that of this release."""
    namespace = f"e2e-stored-objects-{os.urandom(2).hex()}"
    run_kubectl("create", "namespace", namespace)
    run_kubectl("apply", "--server-side", "-f", "-", input=renamed(read_before()))
    run_kubectl("wait", "--for=condition=Established", f"crd/storedjobs.{GROUP}", "--timeout=60s")
    try:
        for name, spec in STORED.items():
            run_kubectl("-n", namespace, "create", "-f", "-", input=job(name, spec))
        new = (ROOT / "crds" / "elasticpytorchjobs.yaml").read_text()
        run_kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=renamed(new))
        create = ("-n", namespace, "create", "--dry-run=server", "-f", "-")
        until(
            lambda: "set the number of workers" in run_kubectl(*create, input=job("new", {}), check=False).stderr,
            "the new definition to be served",
        )
        yield namespace
    finally:
        run_kubectl("delete", f"crd/storedjobs.{GROUP}", "--ignore-not-found")
        run_kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def jobs(place: str) -> Resource:
    return Resource(f"{GROUP}/v1alpha1", "storedjobs", place)


def condition(type_: str, status: str) -> dict[str, str]:
    return {"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def test_stored_defaults_stay(jobs: Resource) -> None:
    spec = jobs.get("without-sizes").spec
    assert {field: spec.get(field) for field in ("replicas", "minReplicas", "nprocPerNode", "managedBy")} == {
        "replicas": None,
        "minReplicas": 1,
        "nprocPerNode": 1,
        "managedBy": "",
    }
    assert jobs.get("torchrun").spec["torchrun"] == {"role": "trainer"}, "fields that have another name now are gone"


@pytest.mark.parametrize("name", STORED)
def test_operator_writes_the_status_of_every_stored_job(jobs: Resource, name: str) -> None:
    status = {"state": "Running", "replicas": 1, "selector": "a=b", "conditions": [condition("Running", "True")]}
    assert jobs.patch(name, {"status": status}, "status").words == ""


@pytest.mark.parametrize("name", STORED)
def test_every_stored_job_can_be_suspended_and_resumed(jobs: Resource, name: str) -> None:
    assert jobs.patch(name, {"spec": {"suspend": True}}).words == ""
    assert jobs.patch(name, {"spec": {"suspend": False}}).words == ""


@pytest.mark.parametrize(
    ("name", "spec", "refused"),
    [
        ("without-sizes", {"replicas": 3}, ""),
        ("without-replicas", {"replicas": 3}, ""),
        ("without-replicas", {"replicas": None}, "spec.replicas: Required value: set the number of workers"),
        ("without-a-maximum", {"replicas": 3}, "may not be raised while maxReplicas is unset: set spec.maxReplicas"),
        ("without-a-maximum", {"replicas": 3, "maxReplicas": 3}, ""),
        ("with-sizes", {"replicas": 4}, ""),
        ("with-sizes", {"minReplicas": None, "maxReplicas": None}, ""),
        ("with-sizes", {"replicas": 3}, "field is immutable while minReplicas is unset"),
        ("long-lived", {"ttlSecondsAfterFinished": 60}, ""),
        ("managed-by-others", {"managedBy": "elasticpytorch.dev/operator"}, "field is immutable"),
        ("without-sizes", {"managedBy": "example.com/other"}, "field is immutable"),
        ("torchrun", {"torchrun": {"monitorIntervalMilliseconds": 500}}, "field is immutable"),
    ],
    ids=str,
)
def test_stored_job_can_be_changed_by_the_rules_of_this_release(
    jobs: Resource, name: str, spec: dict[str, Any], refused: str
) -> None:
    said = jobs.patch(name, {"spec": spec}).words
    assert refused in said if refused else said == ""


def test_template_may_change_once_the_condition_says_that_the_job_is_suspended(jobs: Resource) -> None:
    other = {"spec": {"template": {"metadata": {"labels": {"team": "language"}}}, "nprocPerNode": "auto"}}
    words = "scheduling.podGroup and scheduling.queue are immutable unless the condition Suspended is True"
    assert jobs.patch("with-sizes", {"spec": {"suspend": True}}).words == ""
    for said in ([condition("Running", "False")], [condition("Suspended", "False")]):
        assert jobs.patch("with-sizes", {"status": {"conditions": said}}, "status").words == ""
        assert words in jobs.patch("with-sizes", other).words
    assert jobs.patch("with-sizes", {"status": {"conditions": [condition("Suspended", "True")]}}, "status").words == ""
    assert jobs.patch("with-sizes", {"spec": {"suspend": False, **other["spec"]}}).words == "", (
        "by one who changes and resumes it at once"
    )
    assert jobs.get("with-sizes").spec["nprocPerNode"] == "auto"
    assert words in jobs.patch("with-sizes", {"spec": {"nprocPerNode": 1}}).words


@pytest.mark.parametrize("suspend", [True, False])
def test_template_of_a_job_without_a_status_may_change_if_it_was_created_suspended(jobs: Resource, suspend: bool) -> None:
    name = f"created-{'suspended' if suspend else 'running'}"
    assert jobs.create(json.loads(job(name, {"replicas": 2, "suspend": suspend}))).words == ""
    said = jobs.patch(name, {"spec": {"sharedMemorySize": "1Gi", "suspend": True}}).words
    assert said == "" if suspend else "are immutable unless the condition Suspended is True" in said
