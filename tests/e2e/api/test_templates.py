"""A job that names a template trains by it, and the template stays as it is."""

import json
from typing import Any

import pytest

from tests.e2e.job_under_test import JobUnderTest, run_kubectl

pytestmark = pytest.mark.e2e

API, KIND = "elasticpytorch.dev/v1alpha1", "ClusterElasticPyTorchJobTemplate"
ENDLESS = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/tmp", "--steps", "100000"]


def apply(namespace: str, template: str, *, check: bool = True, container: str = "pytorch") -> str:
    spec = {
        "replicas": 1,
        "minReplicas": 1,
        "maxReplicas": 2,
        "templateRef": {"name": template},
        "template": {"spec": {"containers": [{"name": container, "args": ENDLESS}]}},
    }
    manifest = {
        "apiVersion": API,
        "kind": "ElasticPyTorchJob",
        "metadata": {"name": "short"},
        "spec": spec,
    }
    return run_kubectl(
        "-n", namespace, "apply", "-f", "-", input=json.dumps(manifest), check=check
    ).stderr


def uids(job: JobUnderTest) -> set[str]:
    return {pod["metadata"]["uid"] for pod in job.pods()}


def test_running_job_does_not_notice_what_becomes_of_its_template(
    namespace: str, template: str
) -> None:
    assert "must contain one that is named pytorch if templateRef is set" in apply(
        namespace, template, check=False, container="a"
    )
    apply(namespace, template)
    job = JobUnderTest("short", namespace)
    job.until_world(1)
    job.until_stepping(job.members()[0], 1)
    [pod] = job.pods()
    assert pod["spec"]["containers"][0]["image"] == "elastic-pytorch-worker:dev"
    change = {
        "failurePolicy": {"maxFailures": 9},
        "template": {"spec": {"nodeSelector": {"example.com/no-such-node": "true"}}},
    }
    for part in (change, {"template": None}, {"prepare": {}}):
        patch = json.dumps({"spec": part})
        refused = run_kubectl("patch", "cepjt", template, "--type=merge", "-p", patch, check=False)
        assert "field is immutable: make a template of another name" in refused.stderr
    run_kubectl("label", "cepjt", template, "example.com/team=language")
    uid = json.loads(run_kubectl("get", "cepjt", template, "-o", "json").stdout)["metadata"]["uid"]
    run_kubectl("delete", "cepjt", template)
    job.kubectl("scale", "epj/short", "--replicas=2")
    job.until_world(2)
    assert uids(job) > {pod["metadata"]["uid"]}, (
        "the first pod trains on, and one of the same template has come"
    )
    assert job.status["template"] == {"name": template, "uid": uid}
    other = json.dumps({"spec": {"templateRef": {"name": "other"}}})
    refused = run_kubectl(
        "-n", namespace, "patch", "epj", "short", "--type=merge", "-p", other, check=False
    )
    assert "spec.templateRef: " in refused.stderr
    assert "field is immutable unless the condition Suspended is True" in refused.stderr


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"replicas": 2}, 'unknown field "spec.replicas"'),
    (
        {"failurePolicy": {"maxFailures": -1}},
        "spec.failurePolicy.maxFailures in body should be greater than or equal to 0",
    ),
    (
        {"template": {"spec": {"containers": [{"name": "main"}]}}},
        "must contain one that is named pytorch",
    ),
]


def test_templates_that_no_job_could_use_are_refused() -> None:
    items = [
        {"apiVersion": API, "kind": KIND, "metadata": {"name": "refused"}, "spec": spec}
        for spec, _ in REFUSED
    ]
    text = "\n---\n".join(map(json.dumps, items))
    done = run_kubectl("apply", "--dry-run=server", "-f", "-", input=text, check=False)
    assert done.stdout == "", "none is accepted"
    for _, words in REFUSED:
        assert done.stderr.count(words) == 1, done.stderr
