"""What an API server's policies, quotas, limits and webhooks refuse is told and tried again."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.job_under_test import ENDLESS, JobUnderTest, StartJob, run_kubectl
from tests.waiting import until

pytestmark = pytest.mark.e2e

INDEX = "elasticpytorch.dev/worker-index"
DENIED = "worker 1 is not replaced while the test runs"
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
RETRY_SECONDS = 120.0  # what is refused is tried again every ten seconds


def only(namespace: str) -> dict[str, Any]:
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


@contextmanager
def applied(*manifests: dict[str, Any]) -> Iterator[None]:
    try:
        for manifest in manifests:
            run_kubectl("apply", "-f", "-", input=json.dumps(manifest))
        yield
    finally:
        for manifest in manifests:
            run_kubectl(
                "delete",
                manifest["kind"],
                manifest["metadata"]["name"],
                "--ignore-not-found",
                check=False,
            )


def policy_against_worker_1(namespace: str) -> Sequence[dict[str, Any]]:
    name = f"e2e-no-worker-1-{os.urandom(4).hex()}"
    expression = (
        f"!('{INDEX}' in object.metadata.labels) || object.metadata.labels['{INDEX}'] != '1'"
    )
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"namespaceSelector": only(namespace), "resourceRules": [PODS]},
            "validations": [{"expression": expression, "message": DENIED}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": only(namespace)},
        },
    }
    return policy, binding


def webhook_without_a_service(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"e2e-absent-{os.urandom(4).hex()}"},
        "webhooks": [
            {
                "name": "absent.example.com",
                "clientConfig": {
                    "service": {"namespace": namespace, "name": "absent", "path": "/"}
                },
                "rules": [{**PODS, "scope": "Namespaced"}],
                "namespaceSelector": only(namespace),
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": 2,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def until_refused(namespace: str, words: str) -> None:
    """Waits until the API server refuses a pod of worker 1, which is only tried."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "labels": {INDEX: "1"}},
        "spec": {
            "containers": [
                {
                    "name": "probe",
                    "image": "registry.invalid/probe",
                    "resources": {"limits": {"cpu": "2"}},
                }
            ]
        },
    }

    def refusal() -> str:
        return run_kubectl(
            "-n",
            namespace,
            "create",
            "--dry-run=server",
            "-f",
            "-",
            input=json.dumps(pod),
            check=False,
        ).stderr

    until(lambda: words in refusal(), lambda: f"pods to be refused: {refusal()}")


def until_told(job: JobUnderTest, words: str) -> None:
    """Waits until conditions and an event repeat what the API server says."""

    def is_told(status: dict[str, Any]) -> bool:
        return any(words in condition["message"] for condition in status.get("conditions", []))

    status = job.until(is_told, f"conditions that say {words!r}", RETRY_SECONDS)
    assert status["state"] != "Failed"
    job.until_event("RefusedByApiServer", words)


def lose_worker_1(job: JobUnderTest) -> None:
    [victim] = [
        pod["metadata"]["name"] for pod in job.pods() if pod["metadata"]["labels"][INDEX] == "1"
    ]
    job.kubectl("delete", "pod", victim, "--wait=false")
    job.until_world(2)


@pytest.mark.long
def test_policy_that_denies_a_replacement_is_waited_out(
    start_job: StartJob, namespace: str
) -> None:
    job = start_job(args=ENDLESS)
    job.until_world(3)
    with applied(*policy_against_worker_1(namespace)):
        until_refused(namespace, DENIED)
        lose_worker_1(job)
        until_told(job, DENIED)
        time.sleep(25)  # some further tries
        assert job.status["worldSize"] == 2
    status = job.until_world(3, RETRY_SECONDS)
    assert (status["state"], status["failures"]) == ("Running", 0)
    assert job.condition("Failed")["status"] == "False"
    assert len(job.events("RefusedByApiServer")) == 1, "one event, however often it is tried"


@pytest.mark.long
def test_webhook_that_is_down_is_waited_out(start_job: StartJob, namespace: str) -> None:
    job = start_job(args=ENDLESS)
    job.until_world(3)
    with applied(webhook_without_a_service(namespace)):
        until_refused(namespace, "failed calling webhook")
        lose_worker_1(job)
        until_told(job, 'failed calling webhook "absent.example.com"')
        assert job.status["worldSize"] == 2
    status = job.until_world(3, RETRY_SECONDS)
    assert (status["state"], status["failures"]) == ("Running", 0)
    assert job.condition("Failed")["status"] == "False"


def test_quota_that_is_used_up_is_waited_out(start_job: StartJob, namespace: str) -> None:
    make_quota(namespace, pods=2)
    job = start_job(args=ENDLESS, resizePolicy={"settleSeconds": 1})  # the third does not come
    job.until_world(2, RETRY_SECONDS)
    until_told(job, "exceeded quota: small")
    assert job.condition("Degraded")["status"] == "True"
    run_kubectl(
        "-n",
        namespace,
        "patch",
        "resourcequota",
        "small",
        "--type=merge",
        "--patch",
        '{"spec":{"hard":{"pods":"8"}}}',
    )
    job.until_world(3, RETRY_SECONDS)
    assert job.condition("Failed")["status"] == "False"
    assert "quota" not in job.condition("Running")["message"]


@pytest.mark.long
def test_suspended_job_that_the_quota_does_not_let_run_says_so(
    start_job: StartJob, namespace: str
) -> None:
    make_quota(namespace, pods=0)
    job = start_job(args=ENDLESS, suspend=True)
    until_told(job, "exceeded quota: small")
    assert job.status["state"] == "Suspended"
    assert job.condition("Suspended")["reason"] == "RefusedByApiServer"


def make_quota(namespace: str, pods: int) -> None:
    """Makes a quota, and waits until the API server has counted what there is."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": namespace},
        "spec": {"hard": {"pods": str(pods)}},
    }
    run_kubectl("apply", "-f", "-", input=json.dumps(quota))
    used = ("-n", namespace, "get", "resourcequota", "small", "-o", "jsonpath={.status.used.pods}")
    until(lambda: run_kubectl(*used).stdout, "the quota to be counted")


def test_misspelt_field_fails_a_job_of_each_sort_before_any_pod_is_made(
    start_job: StartJob,
) -> None:
    container = {
        "name": "pytorch",
        "image": "elastic-pytorch-worker:dev",
        "args": ["train.py"],
        "resource": {"limits": {"nvidia.com/gpu": 1}},
    }
    sorts: dict[str, dict[str, Any]] = {
        "runs": {},
        "suspended": {"suspend": True},
        "stock": {"rendezvous": {"backend": "c10d"}},
    }
    jobs = [
        start_job(name=name, template={"spec": {"containers": [container]}}, **spec)
        for name, spec in sorts.items()
    ]
    for job in jobs:
        job.until(lambda status: status.get("state") == "Failed", f"the failure of {job.name}", 60)
        failed = job.condition("Failed")
        assert failed["reason"] == "InvalidTemplate"
        assert 'unknown field "spec.containers[0].resource"' in failed["message"]
        assert job.pods() == []


@pytest.mark.long
def test_service_of_another_owner_is_told(start_job: StartJob, namespace: str) -> None:
    run_kubectl("-n", namespace, "create", "service", "clusterip", "all-reduce", "--tcp=80")
    job = start_job(args=ENDLESS)
    job.until_world(3)
    until_told(job, "Service all-reduce exists and is not owned by this job")
    run_kubectl("-n", namespace, "delete", "service", "all-reduce")
    job.until(
        lambda status: all("Service" not in c["message"] for c in status["conditions"]),
        "the Service",
        RETRY_SECONDS,
    )
    assert job.condition("Failed")["status"] == "False"
