"""A job in a namespace with a quota and only the connections that docs/operate/install.md names.

A network that does not enforce NetworkPolicies lets everything through: then only the quota says
something here.
"""

import json
from typing import Any

import pytest
import yaml

from tests.documentation import blocks
from tests.e2e.job_under_test import ENDLESS, StartJob, run_kubectl
from tests.paths import ROOT

pytestmark = pytest.mark.e2e

RESOURCES = {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}
DENY_ALL = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "default-deny"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}
# Three workers, and a replacement for one that is still being deleted.
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "tight"},
    "spec": {
        "hard": {
            "pods": "4",
            "services": "1",
            "requests.cpu": "200m",
            "requests.memory": "1Gi",
            "limits.memory": "4Gi",
        }
    },
}


def policies_of_the_page() -> list[dict[str, Any]]:
    found = [
        yaml.safe_load(block.text)
        for block in blocks(ROOT / "docs" / "operate" / "install.md")
        if block.language == "yaml"
    ]
    return [manifest for manifest in found if manifest["kind"] == "NetworkPolicy"]


def test_job_trains_and_replaces_a_worker_where_all_else_is_forbidden(
    namespace: str, start_job: StartJob
) -> None:
    for manifest in (DENY_ALL, QUOTA, *policies_of_the_page()):
        run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
    # Until the quota's controller has counted, the API server refuses every pod.
    counted = "--for=jsonpath={.status.hard.pods}=4"
    run_kubectl("-n", namespace, "wait", counted, "resourcequota/tight", "--timeout=60s")
    job = start_job(args=ENDLESS, resources=RESOURCES, injectAgent=True)
    job.until_world(3, 120)
    leader, victim, _ = job.members()
    job.until_stepping(leader, 3)
    job.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    status = job.until_replaced(victim, 3)
    assert status["failures"] == 0
    [init] = job.pods()[0]["status"]["initContainerStatuses"]
    assert init["image"].endswith("elastic-pytorch-agent:dev")
