"""PodGroups on the API server: coscheduling's definition, by hand and without its scheduler."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from elastic_pytorch_operator.api.gang_schedulers import GANG_SCHEDULERS, GangScheduler

from tests.e2e.job_under_test import ENDLESS, JobUnderTest, StartJob, run_kubectl, until_established
from tests.e2e.release import restored, upgrade
from tests.waiting import until

pytestmark = pytest.mark.e2e

# What this operator writes of the published schemas.
QUANTITIES = {
    "type": "object",
    "additionalProperties": {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
    },
}
FIELDS: dict[str, dict[str, Any]] = {
    "Coscheduling": {"minMember": {"type": "integer", "minimum": 1}, "minResources": QUANTITIES},
}
NAMES = sorted(FIELDS)  # all but that of Kubernetes itself, which no definition adds to a cluster


def resource(gang: GangScheduler) -> str:
    return f"podgroups.{gang.api_version.partition('/')[0]}"


def definition(gang: GangScheduler) -> dict[str, Any]:
    group, _, version = gang.api_version.partition("/")
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": FIELDS[gang.name]}},
    }
    names = {
        "kind": "PodGroup",
        "listKind": "PodGroupList",
        "plural": "podgroups",
        "singular": "podgroup",
    }
    versions = [
        {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource(gang)},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    }


@pytest.fixture(scope="module")
def permitted() -> Iterator[None]:
    with restored():
        upgrade(f"gangSchedulers={json.dumps(list(GANG_SCHEDULERS))}")
        yield


@pytest.fixture(scope="module")
def installed(permitted: None) -> Iterator[None]:
    definitions = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [definition(GANG_SCHEDULERS[name]) for name in NAMES],
    }
    try:
        run_kubectl("apply", "-f", "-", input=json.dumps(definitions))
        for name in NAMES:
            until_established(resource(GANG_SCHEDULERS[name]))
        yield
    finally:
        for name in NAMES:
            run_kubectl("delete", "crd", resource(GANG_SCHEDULERS[name]), "--ignore-not-found")


def scheduling(name: str) -> dict[str, Any]:
    return {"gangScheduler": name}


def group_of(job: JobUnderTest, name: str) -> dict[str, Any] | None:
    found = job.kubectl(
        "get", resource(GANG_SCHEDULERS[name]), job.name, "-o", "json", "--ignore-not-found"
    )
    return json.loads(found) if found else None


def test_job_without_permission_starts_no_pod_and_says_what_to_set(start_job: StartJob) -> None:
    job = start_job(args=ENDLESS, scheduling=scheduling("Coscheduling"))
    until(
        lambda: "add Coscheduling to gangSchedulers" in job.condition("Running").get("message", ""),
        "words",
    )
    assert not job.pods()


@pytest.mark.serial
@pytest.mark.usefixtures("permitted")
@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("Coscheduling", "scheduling.x-k8s.io/v1alpha1: install that scheduler, or remove gang"),
        (
            "Kubernetes",
            "scheduling.k8s.io/v1beta1: enable that API and the feature gate GenericWorkload",
        ),
    ],
)
def test_job_whose_scheduler_is_not_installed_starts_no_pod_and_says_so(
    start_job: StartJob, name: str, missing: str
) -> None:
    job = start_job(args=ENDLESS, scheduling=scheduling(name))
    words = f"the cluster has no PodGroup of {missing}"
    until(lambda: words in job.condition("Running").get("message", ""), "words")
    assert not job.pods()


@pytest.mark.serial
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", NAMES)
def test_gang_has_its_pod_group_before_its_pods(start_job: StartJob, name: str) -> None:
    gang = GANG_SCHEDULERS[name]
    job = start_job(args=ENDLESS, replicas=3, minReplicas=2, scheduling=scheduling(name))
    until(lambda: len(job.pods()) == 3, "pods")
    group, pods = group_of(job, name), job.pods()
    assert int(group["metadata"]["resourceVersion"]) < min(
        int(pod["metadata"]["resourceVersion"]) for pod in pods
    )
    assert [owner["uid"] for owner in group["metadata"]["ownerReferences"]] == [
        job.get()["metadata"]["uid"]
    ]
    assert group["spec"]["minMember"] == 2
    assert group["spec"]["minResources"] == {"cpu": "100m", "memory": str(2 * 256 * 2**20)}
    for pod in pods:
        assert pod["spec"]["schedulerName"] == gang.scheduler_name
        assert pod["metadata"]["labels"][gang.group_label] == job.name
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", '{"spec": {"minReplicas": 3}}')
    until(
        lambda: (group_of(job, name) or {}).get("spec", {}).get("minMember") == 3, "the new minimum"
    )
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", '{"spec": {"suspend": true}}')
    until(lambda: group_of(job, name) is None, "no PodGroup of a suspended job")
    assert not job.pods()
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", '{"spec": {"suspend": false}}')
    until(
        lambda: group_of(job, name) is not None and len(job.pods()) == 3,
        "the PodGroup and the pods again",
    )
