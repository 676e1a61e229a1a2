"""Pods of our jobs in a namespace with a LocalQueue named `default`, which Kueue's pod integration takes for its own."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.e2e.job_under_test import run_kubectl
from tests.e2e.kueue.conftest import MakeQueue
from tests.e2e.kueue.manager import configured
from tests.e2e.kueue.workloads import until

pytestmark = pytest.mark.long

Owner = dict[str, Any]
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
KIND = "ElasticPyTorchJob.v1alpha1.elasticpytorch.dev"
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "e2e-kueue-reads-jobs"},
    "rules": [{"apiGroups": ["elasticpytorch.dev"], "resources": ["elasticpytorchjobs"], "verbs": ["get", "list", "watch"]}],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "e2e-kueue-reads-jobs"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e2e-kueue-reads-jobs"},
    "subjects": [{"kind": "ServiceAccount", "name": "kueue-controller-manager", "namespace": "kueue-system"}],
}


def seized(namespace: str, owner: Owner) -> bool | str:
    """Whether Kueue takes a worker's pod for its own; or what the API server says if it refuses the pod."""
    metadata = {"generateName": "worker-", "namespace": namespace, "ownerReferences": [owner]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "pytorch", "image": "none"}]},
    }
    asked = run_kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=yaml.safe_dump(pod), check=False)
    if asked.returncode:
        return asked.stderr
    made = json.loads(asked.stdout)
    return bool(made["spec"].get("schedulingGates"))


def test_pods_are_seized_unless_kueue_knows_the_kind_of_their_job(
    make_queue: MakeQueue, owner: Owner, namespace: str, kubectl: Callable[..., Any]
) -> None:
    assert seized(namespace, owner) is False, "a namespace without such a queue"
    make_queue(2, local_name="default")
    until(lambda: seized(namespace, owner) is True, lambda: "pods to be seized")
    kubectl("label", "epj", owner["name"], f"{QUEUE_LABEL}=default")
    assert seized(namespace, owner) is True, "the label of a job of an unknown kind means nothing"

    run_kubectl("apply", "-f", "-", input=yaml.safe_dump_all([ROLE, BINDING]))
    try:
        with configured(integrations={"frameworks": ["batch/job", "pod"], "externalFrameworks": [KIND]}):
            until(lambda: seized(namespace, owner) is False, lambda: f"pods to be left alone: {seized(namespace, owner)}")
            kubectl("label", "epj", owner["name"], f"{QUEUE_LABEL}-")
            until(lambda: seized(namespace, owner) is True, lambda: "pods of a job without the label to be seized")
    finally:
        run_kubectl("delete", "clusterrolebinding,clusterrole", "e2e-kueue-reads-jobs")


def test_kueue_refuses_pods_of_a_kind_that_it_knows_but_may_not_read(
    make_queue: MakeQueue, owner: Owner, namespace: str, kubectl: Callable[..., Any]
) -> None:
    kubectl("label", "epj", owner["name"], f"{QUEUE_LABEL}=training")
    make_queue(2)
    with configured(integrations={"frameworks": ["batch/job", "pod"], "externalFrameworks": [KIND]}):
        assert isinstance(seized(namespace, owner), str)
