"""Pods of our jobs where a LocalQueue named `default` has Kueue's pod integration take pods."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
import yaml

from tests.e2e.job_under_test import run_kubectl
from tests.e2e.kueue.conftest import QUEUE_SECONDS, MakeQueue, Owner, StartQueued
from tests.e2e.kueue.manager import configured
from tests.e2e.kueue.workloads import apply
from tests.waiting import until

pytestmark = pytest.mark.long

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
KIND = "ElasticPyTorchJob.v1alpha1.elasticpytorch.dev"
ROLE_NAME = "e2e-kueue-reads-jobs"
KNOWN = {"frameworks": ["batch/job", "pod"], "externalFrameworks": [KIND]}
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": ROLE_NAME},
    "rules": [
        {
            "apiGroups": ["elasticpytorch.dev"],
            "resources": ["elasticpytorchjobs"],
            "verbs": ["get", "list", "watch"],
        }
    ],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": ROLE_NAME},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE_NAME},
    "subjects": [
        {"kind": "ServiceAccount", "name": "kueue-controller-manager", "namespace": "kueue-system"}
    ],
}


@contextmanager
def kueue_reads_jobs() -> Iterator[None]:
    apply(ROLE, BINDING)
    try:
        yield
    finally:
        run_kubectl("delete", "clusterrolebinding,clusterrole", ROLE_NAME)


def fate_of_pod(namespace: str, owner: Owner) -> Literal["free", "seized", "refused"]:
    metadata = {"generateName": "worker-", "namespace": namespace, "ownerReferences": [owner]}
    spec = {"containers": [{"name": "pytorch", "image": "none"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    asked = run_kubectl(
        "create",
        "--dry-run=server",
        "-o",
        "json",
        "-f",
        "-",
        input=yaml.safe_dump(pod),
        check=False,
    )
    if asked.returncode:
        return "refused"
    return "seized" if json.loads(asked.stdout)["spec"].get("schedulingGates") else "free"


def test_pods_are_seized_unless_kueue_knows_the_kind_of_their_job(
    make_queue: MakeQueue, owner: Owner, namespace: str, kubectl: Callable[..., Any]
) -> None:
    def until_fate(fate: str) -> None:
        until(
            lambda: fate_of_pod(namespace, owner) == fate,
            lambda: f"a pod to be {fate}, not {fate_of_pod(namespace, owner)}",
        )

    assert fate_of_pod(namespace, owner) == "free", "a namespace without such a queue"
    make_queue(2, local_name="default")
    until_fate("seized")
    kubectl("label", "epj", owner["name"], f"{QUEUE_LABEL}=default")
    assert fate_of_pod(namespace, owner) == "seized", (
        "the label of a job of an unknown kind means nothing"
    )

    with kueue_reads_jobs(), configured(integrations=KNOWN):
        until_fate("free")
        kubectl("label", "epj", owner["name"], f"{QUEUE_LABEL}-")
        until_fate("seized")


def test_kueue_refuses_pods_of_a_kind_that_it_knows_but_may_not_read(
    make_queue: MakeQueue, owner: Owner, namespace: str, kubectl: Callable[..., Any]
) -> None:
    kubectl("label", "epj", owner["name"], f"{QUEUE_LABEL}=training")
    make_queue(2)
    with configured(integrations=KNOWN):
        assert fate_of_pod(namespace, owner) == "refused"


@pytest.mark.usefixtures("operator_with_queues")
def test_a_job_of_a_queue_named_default_trains_where_kueue_knows_its_kind(
    make_queue: MakeQueue, start_queued: StartQueued
) -> None:
    queue = make_queue(2, local_name="default")
    with kueue_reads_jobs(), configured(integrations=KNOWN):
        job = start_queued("job", 2, 1, queue="default")
        job.until_world(2, QUEUE_SECONDS)
        queue.until_used(2)
