"""ProvisioningRequests: Kueue asks a cluster autoscaler for nodes first.

The test plays the autoscaler, on a CRD without a schema.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.job_under_test import run_kubectl, until_established
from tests.e2e.kueue.conftest import QUEUE_SECONDS, MakeQueue, StartQueued
from tests.e2e.kueue.manager import configured
from tests.e2e.kueue.workloads import Workload, apply, condition, kueue_object
from tests.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("operator_with_queues")]

PARAMETER = "maxRunDurationSeconds"
GROUP, PLURAL = "autoscaling.x-k8s.io", "provisioningrequests"
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    # Kubernetes' own groups are protected: who defines one says that it is no part of them.
    "metadata": {
        "name": f"{PLURAL}.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": GROUP,
        "names": {
            "kind": "ProvisioningRequest",
            "listKind": "ProvisioningRequestList",
            "plural": PLURAL,
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": ANY, "status": ANY},
                    }
                },
                "subresources": {"status": {}},
            }
        ],
    },
}


@contextmanager
def provisioning() -> Iterator[None]:
    """Kueue makes ProvisioningRequests; its manager looks for their kind when it starts."""
    apply(CRD)
    until_established(CRD["metadata"]["name"])
    try:
        with configured():
            yield
    finally:
        run_kubectl("delete", "crd", CRD["metadata"]["name"])


def requests(namespace: str) -> list[str]:
    found = run_kubectl("-n", namespace, "get", f"{PLURAL}.{GROUP}", "-o", "name").stdout.split()
    return [name.partition("/")[2] for name in found]


def provisioned(namespace: str, parameter: str) -> int:
    """Says of every request that its nodes are there; returns how many there are.

    All carry the parameter of their job.
    """
    target = ("-n", namespace, "patch", f"{PLURAL}.{GROUP}", "--subresource=status", "--type=merge")
    found = json.loads(
        run_kubectl("-n", namespace, "get", f"{PLURAL}.{GROUP}", "-o", "json").stdout
    )["items"]
    patch = json.dumps(
        {"status": {"conditions": [condition("Provisioned", "True", "Provisioned")]}}
    )
    for request in found:
        assert request["spec"]["parameters"][parameter] == "600"
        if not request.get("status"):
            run_kubectl(*target, request["metadata"]["name"], "-p", patch)
    return len(found)


@contextmanager
def admission_check(name: str) -> Iterator[None]:
    """An AdmissionCheck by ProvisioningRequests, and its configuration, while a test needs them."""
    apply(
        kueue_object(
            "ProvisioningRequestConfig", {"name": name}, {"provisioningClassName": "by-hand"}
        )
    )
    config = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": name}
    spec = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": config}
    apply(kueue_object("AdmissionCheck", {"name": name}, spec))
    try:
        yield
    finally:
        run_kubectl("delete", "admissionchecks.v1beta2.kueue.x-k8s.io", name, "--wait=false")
        run_kubectl("delete", "provisioningrequestconfigs.kueue.x-k8s.io", name, "--wait=false")


def test_workers_wait_for_nodes_and_consume_their_request(
    make_queue: MakeQueue, start_queued: StartQueued, namespace: str
) -> None:
    with provisioning(), admission_check(namespace):
        queue = make_queue(3, checks=[namespace])
        job = start_queued(
            "job", 3, 2, job_annotations={f"provreq.kueue.x-k8s.io/{PARAMETER}": "600"}
        )
        base = Workload("job-base", namespace)
        until(lambda: len(requests(namespace)) == 1, lambda: f"the base's request: {job.status}")
        assert base.holds("QuotaReserved")
        assert not job.pods(), "there are no nodes yet"
        assert job.condition("Running")["reason"] == "QuotaRequested"

        provisioned(namespace, PARAMETER)
        base.until("Admitted")
        job.until_world(2, QUEUE_SECONDS)
        until(lambda: provisioned(namespace, PARAMETER) == 2, "the extra's request", QUEUE_SECONDS)
        job.until_world(3, QUEUE_SECONDS)
        consumed = {
            pod["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"]
            for pod in job.pods()
        }
        assert consumed == set(requests(namespace))
        queue.until_used(3)
