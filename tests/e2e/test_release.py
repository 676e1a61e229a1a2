"""The release itself: tested by helm, upgraded, removed and installed again under a job that trains."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from audit_log import requests_since
from job_under_test import OPERATOR_NAMESPACE, JobUnderTest, StartJob, run_kubectl
from release import NAME, helm, may, restore, roles_of_the_release, uninstall, upgrade

pytestmark = pytest.mark.e2e

ENDLESS = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]
SHORT = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "5"]

# Asked for as a right, and never as a request: an admission plugin of many clusters wants it of whoever sets blockOwnerDeletion.
# And what is done to the Secret of the certificates: once, and every two months.
RIGHTS_ONLY = {
    ("elasticpytorch.dev", "elasticpytorchjobs/finalizers", "update"),
    ("", "secrets", "create"),
    ("", "secrets", "update"),
}


@contextmanager
def restored() -> Iterator[None]:
    try:
        yield
    finally:
        restore()


def steps_told(job: JobUnderTest, pod: str) -> list[int]:
    return [int(line.split()[1]) for line in job.logs(pod) if line.startswith("STEP")]


def until_more_steps(job: JobUnderTest, pod: str, count: int = 10) -> None:
    last = steps_told(job, pod)[-1]
    job.until(lambda _: steps_told(job, pod)[-1] >= last + count, f"{count} more steps")


def test_helm_test_passes_where_pods_are_restricted() -> None:
    labels = run_kubectl("get", "namespace", OPERATOR_NAMESPACE, "-o", "jsonpath={.metadata.labels}").stdout
    assert '"pod-security.kubernetes.io/enforce":"restricted"' in labels
    told = helm("test", NAME, "--timeout=2m").split()
    assert told[told.index("Phase:") + 1] == "Succeeded"


def test_training_does_not_notice_an_upgrade_nor_that_the_release_is_gone(start_job: StartJob) -> None:
    since = datetime.now(UTC)
    job = start_job(args=ENDLESS, replicas=2, ttlSecondsAfterFinished=1)
    job.until_world(2)
    leader, other = job.members()
    job.until_stepping(leader, 2)
    with restored():
        upgrade('logLevel="DEBUG"', 'podAnnotations={"example.com/upgraded":"yes"}')
        until_more_steps(job, leader)
        uninstall()
        # As on a cluster that has never had an operator: making the Lease is one of its rights.
        run_kubectl("-n", OPERATOR_NAMESPACE, "delete", "lease", NAME, "--ignore-not-found")
        until_more_steps(job, leader)
        assert "elasticpytorchjobs" in run_kubectl("get", "crd", "elasticpytorchjobs.elasticpytorch.dev", "-o", "name").stdout
        assert sorted(pod["metadata"]["name"] for pod in job.pods()) == sorted([leader, other])
        job.kubectl("scale", f"epj/{job.name}", "--replicas=3")
    job.until_world(3)
    assert set(job.members()) > {leader, other}, "the workers from before are in the group, and a new one"
    job.until_stepping(leader, 3)
    told = job.logs(leader)
    assert len([line for line in told if line.startswith("INIT")]) == 2, "one round before and one for the newcomer"
    steps = steps_told(job, leader)
    before = steps[: next(i for i, line in enumerate(line for line in told if line.startswith("STEP")) if "world=3" in line)]
    assert before == list(range(1, len(before) + 1)), "no step was done twice while the release changed"
    job.kubectl("scale", f"epj/{job.name}", "--replicas=1")
    job.until(lambda status: status.get("worldSize") == 1 and len(job.pods()) == 1, "one worker")
    finish = run_kubectl(
        "-n", job.namespace, "patch", "epj", job.name, "--type=merge", "-p", '{"spec":{"activeDeadlineSeconds":1}}'
    )
    assert finish.returncode == 0
    run_kubectl("-n", job.namespace, "wait", "--for=delete", f"epj/{job.name}", "--timeout=60s")
    assert_permissions_are_exact(since)


def assert_permissions_are_exact(since: datetime) -> None:
    """The audit log of all that the operator did since then tells of every verb in its roles, and of no other."""
    requests = requests_since(since)
    refused = {(r.group, r.resource, r.verb) for r in requests if not r.allowed}
    used = {(r.group, r.resource, r.verb) for r in requests if r.allowed}
    granted = {
        (group, resource, verb)
        for role in roles_of_the_release()
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert not refused
    assert granted - RIGHTS_ONLY == used - RIGHTS_ONLY


def test_operator_of_one_namespace_leaves_others_alone(start_job: StartJob) -> None:
    inside = start_job(args=SHORT, replicas=1, suspend=True)
    outside = f"{inside.namespace}-outside"
    run_kubectl("create", "namespace", outside)
    try:
        with restored():
            upgrade(f'watchNamespaces=["{inside.namespace}"]')
            manifest = run_kubectl("-n", inside.namespace, "get", "epj", inside.name, "-o", "yaml").stdout
            moved = manifest.replace(f"namespace: {inside.namespace}", f"namespace: {outside}")
            run_kubectl("-n", outside, "apply", "-f", "-", input=moved.partition("\nstatus:")[0])
            for job in (inside, JobUnderTest(inside.name, outside)):
                job.kubectl("patch", "epj", job.name, "--type=merge", "-p", '{"spec":{"suspend":false}}')
            inside.until(lambda status: status.get("state") == "Complete", "the end of the job that is looked after")
            other = JobUnderTest(inside.name, outside)
            assert (other.status, other.pods()) == ({}, [])
            for verb, resource in (("create", "pods"), ("list", "elasticpytorchjobs"), ("get", "services")):
                assert may(verb, resource, inside.namespace)
                assert not may(verb, resource, outside)
        other.until(lambda status: status.get("state") is not None, "the other to be looked after again, as all are")
    finally:
        run_kubectl("delete", "namespace", outside, "--wait=false")
