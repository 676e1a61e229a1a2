"""Rules for objects that no operator has looked at yet: by a definition that none watches."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.api_requests import Resource
from tests.e2e.job_under_test import run_kubectl, until_established
from tests.paths import ROOT

pytestmark = pytest.mark.e2e

# A definition for each process that runs some of these tests: each deletes its own at its end.
RUN = os.urandom(2).hex()
GROUP = f"unwatched-{RUN}.elasticpytorch.dev"
POD = {"spec": {"containers": [{"name": "pytorch", "image": "registry.invalid/worker"}]}}


def definition() -> str:
    found: dict[str, Any] = yaml.safe_load((ROOT / "crds" / "elasticpytorchjobs.yaml").read_text())
    found["metadata"] = {"name": f"unwatchedjobs.{GROUP}"}
    names = {
        "kind": "UnwatchedJob",
        "listKind": "UnwatchedJobList",
        "plural": "unwatchedjobs",
        "singular": "unwatchedjob",
    }
    found["spec"] |= {"group": GROUP, "names": names}
    return json.dumps(found)


def job(name: str, **spec: Any) -> dict[str, Any]:
    manifest = {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "UnwatchedJob",
        "metadata": {"name": name},
    }
    return manifest | {"spec": {"template": POD, "replicas": 2, **spec}}


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """A namespace in which such jobs can be created."""
    namespace = f"e2e-unwatched-objects-{RUN}"
    run_kubectl("create", "namespace", namespace)
    run_kubectl("apply", "--server-side", "-f", "-", input=definition())
    try:
        until_established(f"unwatchedjobs.{GROUP}")
        yield namespace
    finally:
        run_kubectl("delete", f"crd/unwatchedjobs.{GROUP}", "--ignore-not-found")
        run_kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def jobs(place: str) -> Resource:
    return Resource(f"{GROUP}/v1alpha1", "unwatchedjobs", place)


def condition(type_: str, status: str) -> dict[str, str]:
    return {
        "type": type_,
        "status": status,
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def test_template_may_change_once_the_condition_says_that_the_job_is_suspended(
    jobs: Resource,
) -> None:
    other = {
        "spec": {"template": {"metadata": {"labels": {"team": "language"}}}, "nprocPerNode": "auto"}
    }
    words = "field is immutable unless the condition Suspended is True"
    assert jobs.create(job("seen")).words == ""
    assert jobs.patch("seen", {"spec": {"suspend": True}}).words == ""
    for said in ([condition("Running", "False")], [condition("Suspended", "False")]):
        assert jobs.patch("seen", {"status": {"conditions": said}}, "status").words == ""
        assert words in jobs.patch("seen", other).words
    assert (
        jobs.patch(
            "seen", {"status": {"conditions": [condition("Suspended", "True")]}}, "status"
        ).words
        == ""
    )
    assert jobs.patch("seen", {"spec": {"suspend": False, **other["spec"]}}).words == "", (
        "by one who changes and resumes it at once"
    )
    assert jobs.get("seen").spec["nprocPerNode"] == "auto"
    assert words in jobs.patch("seen", {"spec": {"nprocPerNode": 1}}).words


@pytest.mark.parametrize("suspend", [True, False])
def test_template_of_a_job_without_a_status_may_change_if_it_was_created_suspended(
    jobs: Resource, suspend: bool
) -> None:
    name = f"created-{'suspended' if suspend else 'running'}"
    assert jobs.create(job(name, suspend=suspend)).words == ""
    said = jobs.patch(name, {"spec": {"sharedMemorySize": "1Gi", "suspend": True}}).words
    assert (
        said == ""
        if suspend
        else "field is immutable unless the condition Suspended is True" in said
    )


def test_number_of_workers_cannot_be_removed(jobs: Resource) -> None:
    assert jobs.create(job("sized")).words == ""
    assert (
        "spec.replicas: Required value: set the number of workers"
        in jobs.patch("sized", {"spec": {"replicas": None}}).words
    )
