"""The release under a job that trains: upgraded, confined to a namespace, removed, reinstalled."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from measure.kind_cluster import OPERATOR_NAMESPACE

from tests.e2e.audit_log import requests_between
from tests.e2e.job_under_test import ENDLESS, JobUnderTest, StartJob, run_kubectl
from tests.e2e.release import may, operators, restored, roles_of_the_release, uninstall, upgrade

pytestmark = pytest.mark.e2e


# Asked for as a right, and never as a request: an admission plugin of many clusters wants it of
# whoever sets blockOwnerDeletion. So is the one for addresses of pods, of OpenShift. And the Secret
# of the certificates is written every two months only. And reviews of tokens: minutes after their
# signatures. And what a job keeps of its template: there is none.
RIGHTS_ONLY = {
    ("elasticpytorch.dev", "elasticpytorchjobs/finalizers", "update"),
    ("discovery.k8s.io", "endpointslices/restricted", "create"),
    ("", "secrets", "update"),
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("apps", "controllerrevisions", "get"),
    ("apps", "controllerrevisions", "create"),
}


@pytest.fixture
def outside(start_job: StartJob, namespace: str) -> Iterator[JobUnderTest]:
    """A namespace that the operator shall leave alone, with a job once `start_job` made one."""
    name = f"{namespace}-out"
    run_kubectl("create", "namespace", name)
    yield JobUnderTest("all-reduce", name)
    run_kubectl("delete", "namespace", name, "--wait=false")


def steps_told(job: JobUnderTest, pod: str) -> list[int]:
    return [int(line.split()[1]) for line in job.logs(pod) if line.startswith("STEP")]


def until_more_steps(job: JobUnderTest, pod: str, count: int = 10) -> None:
    last = steps_told(job, pod)[-1]
    job.until(lambda _: steps_told(job, pod)[-1] >= last + count, f"{count} more steps")


def test_nothing_of_the_release_needs_more_than_restricted_pods_may() -> None:
    labels = json.loads(
        run_kubectl(
            "get", "namespace", OPERATOR_NAMESPACE, "-o", "jsonpath={.metadata.labels}"
        ).stdout
    )
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.serial
def test_training_does_not_notice_what_becomes_of_the_release(
    start_job: StartJob, outside: JobUnderTest
) -> None:
    began = datetime.now(UTC)
    # A claim that no pod mounts, for the pods have a volume of its template's name: that it is
    # never bound holds nothing up.
    claim = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claims = [{"metadata": {"name": "checkpoints"}, "spec": claim}]
    job = start_job(args=ENDLESS, replicas=2, ttlSecondsAfterFinished=1, sharedVolumeClaims=claims)
    job.until_world(2)
    leader = job.members()[0]
    job.until_stepping(leader, 2)
    with restored():
        upgrade('logLevel="DEBUG"', f'watchNamespaces=["{job.namespace}"]')
        confined = operators()
        job.start_again_in(outside.namespace, replicas=1)
        ask_for_template(job.namespace)
        job.kubectl("scale", f"epj/{job.name}", "--replicas=3")
        job.until_world(3)
        assert (outside.status, outside.pods()) == ({}, []), (
            "one job is looked after, the other one is not"
        )
        for verb, resource in (
            ("create", "pods"),
            ("list", "elasticpytorchjobs"),
            ("get", "services"),
        ):
            assert may(verb, resource, job.namespace)
            assert not may(verb, resource, outside.namespace)
        until_more_steps(job, leader)
        gone = datetime.now(UTC)
        uninstall()
        until_more_steps(job, leader)
        assert len(job.pods()) == 3
        job.kubectl("scale", f"epj/{job.name}", "--replicas=1")
    job.until(lambda status: status.get("worldSize") == 1 and len(job.pods()) == 1, "one worker")
    outside.until(
        lambda status: status.get("state") is not None,
        "the other job to be looked after, as all are again",
    )
    assert job.members() == [leader], "a worker from before goes on"
    told = job.logs(leader)
    assert len([line for line in told if line.startswith("INIT")]) == 3, (
        "one round for each change of the size, and no other"
    )
    with_three = [
        int(line.split()[1]) for line in told if line.startswith("STEP") and "world=3 " in line
    ]
    assert with_three == list(range(with_three[0], with_three[0] + len(with_three))), (
        "no step was done twice meanwhile"
    )
    job.kubectl(
        "patch", "epj", job.name, "--type=merge", "-p", '{"spec":{"activeDeadlineSeconds":1}}'
    )
    run_kubectl("-n", job.namespace, "wait", "--for=delete", f"epj/{job.name}", "--timeout=60s")
    assert_permissions_are_exact(began, gone, confined)


def ask_for_template(namespace: str) -> None:
    """Has the operator look for a template; there is none."""
    asking = JobUnderTest("asks", namespace)
    spec = {"replicas": 1, "suspend": True, "templateRef": {"name": "none"}}
    manifest = {
        "apiVersion": "elasticpytorch.dev/v1alpha1",
        "kind": "ElasticPyTorchJob",
        "spec": spec,
    }
    manifest["metadata"] = {"name": asking.name}
    run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
    asking.until(lambda status: "TemplateMissing" in str(status), "a template to be looked for")


def assert_permissions_are_exact(began: datetime, gone: datetime, confined: set[str]) -> None:
    """The audit log has every verb of the operator's roles, and none that was refused.

    Rights change a moment before those who have them, so only who came with the rights is judged by
    them.

    Args:
        began: when it began to do all sorts of things.
        gone: when it was about to be removed.
        confined: the pods that looked after one namespace until then; the ones since look after
            all.
    """
    now = datetime.now(UTC)
    before, after = requests_between(began, gone), requests_between(gone, now)
    refused = [r for r in before if r.pod in confined and not r.allowed]
    refused += [r for r in after if r.pod in operators() and not r.allowed]
    granted = {
        # Kubernetes' own role names each URL with a slash at its end, too.
        (group, resource.rstrip("/"), verb)
        for role in roles_of_the_release()
        for rule in role["rules"]
        for group in rule.get("apiGroups", [""])
        for resource in rule.get("resources") or rule["nonResourceURLs"]
        for verb in rule["verbs"]
    }
    used = {(r.group, r.resource, r.verb) for r in before | after if r.allowed}
    # Everyone may read what APIs there are.
    used -= {request for request in used - granted if request[1].startswith("/")}
    assert not refused
    assert granted - RIGHTS_ONLY == used - RIGHTS_ONLY
