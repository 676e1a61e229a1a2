"""The chart's admission policies on a real API server: what each refuses, in which words."""

import copy
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.chart.chart_rendering import needs_helm, render
from tests.e2e.api_requests import Resource
from tests.e2e.job_under_test import run_kubectl
from tests.situations import situations
from tests.waiting import until

pytestmark = pytest.mark.e2e

REGISTRY, QUEUE = "registry.invalid/ml", "kueue.x-k8s.io/queue-name"
LIMIT = "elasticpytorch.dev/max-replicas"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
ALL = (
    "kueue.enabled=true",
    "policies.queueRequired.enabled=true",
    "policies.ttlRequired.enabled=true",
    "policies.ttlRequired.maxSeconds=3600",
    "policies.replicaLimit.enabled=true",
    f'policies.imageRegistries.registries=["{REGISTRY}"]',
)
# The operator leaves this job alone: it is another one's.
JOB: dict[str, Any] = {
    "apiVersion": "elasticpytorch.dev/v1alpha1",
    "kind": "ElasticPyTorchJob",
    "metadata": {"generateName": "job-", "labels": {QUEUE: "team"}},
    "spec": {
        "managedBy": "example.com/none",
        "replicas": 2,
        "minReplicas": 1,
        "maxReplicas": 16,
        "ttlSecondsAfterFinished": 600,
        "template": {
            "spec": {
                "containers": [
                    {"name": "pytorch", "image": f"{REGISTRY}/train:1", "args": ["train.py"]}
                ]
            }
        },
    },
}
COMPLETE = {"type": "Complete", "status": "True", "reason": "x", "message": ""}
ENDED = {"conditions": [COMPLETE | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}

Change = Callable[[dict[str, Any]], object]


class Jobs:
    """Jobs of a namespace; each method returns the API server's refusal, empty if there is none."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def create(self, change: Change = lambda job: None) -> str:
        """Tries a new job, by a dry run."""
        tried = Resource(JOB["apiVersion"], "elasticpytorchjobs", self.namespace).create(
            changed(change), dry_run=True
        )
        return "" if tried.code == 201 else tried.words

    def make(self, change: Change = lambda job: None) -> str:
        create = ("-n", self.namespace, "create", "-o", "name", "-f", "-")
        return run_kubectl(*create, input=json.dumps(changed(change))).stdout.strip()

    def patch(self, job: str, patch: dict[str, Any], *options: str) -> str:
        return self._asked("patch", job, "--type=merge", "--patch", json.dumps(patch), *options)

    def label(self, job: str, queue: str | None) -> str:
        return self.patch(job, {"metadata": {"labels": {QUEUE: queue}}})

    def scale(self, job: str, replicas: int) -> str:
        return self._asked("scale", job, f"--replicas={replicas}")

    def delete(self, job: str) -> str:
        return self._asked("delete", job)

    def limit(self, value: str | None) -> None:
        label = f"{LIMIT}-" if value is None else f"{LIMIT}={value}"
        run_kubectl("label", "namespace", self.namespace, "--overwrite", label)

    def _asked(self, *arguments: str, **options: Any) -> str:
        done = run_kubectl("-n", self.namespace, *arguments, check=False, **options)
        return done.stderr if done.returncode else ""


def changed(change: Change) -> dict[str, Any]:
    job = copy.deepcopy(JOB)
    change(job)
    return job


@pytest.fixture(scope="module")
def applied(shared_namespace: str) -> Iterator[list[dict[str, Any]]]:
    """All policies, under names of this run's own, and for one namespace only.

    A namespaceSelector alone would leave the templates of other tests, which have no namespace.
    """
    name = f"e2e-{os.urandom(4).hex()}"
    selector = json.dumps({"matchLabels": {"kubernetes.io/metadata.name": shared_namespace}})
    rendered = [
        o
        for o in render(*ALL, f"policies.namespaceSelector={selector}")
        if o["kind"] in (POLICY, BINDING)
    ]
    is_here = f"has(request.namespace) && request.namespace == '{shared_namespace}'"
    here = {"name": "here", "expression": is_here}
    for policy in (o for o in rendered if o["kind"] == POLICY):
        policy["spec"].setdefault("matchConditions", []).append(here)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": rendered}).replace(
        "elastic-pytorch-operator-", f"{name}-"
    )
    try:
        run_kubectl("apply", "-f", "-", input=text)
        yield json.loads(text)["items"]
    finally:
        run_kubectl("delete", "--ignore-not-found", "-f", "-", input=text, check=False)


@pytest.fixture(scope="module")
def jobs(shared_namespace: str, applied: list[dict[str, Any]]) -> Jobs:
    found = Jobs(shared_namespace)
    queued = found.make()
    until_they_hold(found)
    until(lambda: found.label(queued, os.urandom(4).hex()), "the policy of changes to hold")
    found.limit("0")
    until(found.create, "the policy of replicas to hold")
    found.limit(None)
    until(lambda: not found.create(), "the limit to end")
    return found


def without(part: str, field: str) -> Change:
    return lambda job: job[part].pop(field)


def spec(**fields: Any) -> Change:
    return lambda job: job["spec"].update(fields)


def without_maximum(**fields: Any) -> Change:
    return lambda job: (job["spec"].pop("maxReplicas"), job["spec"].update(fields))


def pod(**fields: Any) -> Change:
    return lambda job: job["spec"]["template"]["spec"].update(fields)


def init_containers(image: str) -> Change:
    return pod(initContainers=[{"name": "i", "image": image}])


def image(name: str) -> Change:
    return lambda job: job["spec"]["template"]["spec"]["containers"][0].update(image=name)


def bad(job: dict[str, Any]) -> None:
    """Breaks what every policy asks of a new job, the limit of replicas apart."""
    del job["metadata"]["labels"], job["spec"]["ttlSecondsAfterFinished"]
    image("other.invalid/train")(job)


BAD = (
    without("metadata", "labels"),
    without("spec", "ttlSecondsAfterFinished"),
    image("other.invalid/train"),
)


def until_they_hold(jobs: Jobs) -> None:
    for number, change in enumerate(BAD):
        until(lambda change=change: jobs.create(change), f"policy {number} to hold")


@contextmanager
def lifted(
    jobs: Jobs, applied: list[dict[str, Any]], policy: str, change: Change
) -> Iterator[None]:
    """Some policies do not hold in the context: those whose names end so.

    Without them, a change is admitted.
    """
    found = [o for o in applied if o["kind"] == BINDING and o["metadata"]["name"].endswith(policy)]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": found})
    run_kubectl("delete", "-f", "-", input=text)
    try:
        until(lambda: not jobs.create(change), "no such policy to hold")
        yield
    finally:
        run_kubectl("apply", "-f", "-", input=text)
        until_they_hold(jobs)


@needs_helm
def test_api_server_finds_no_fault_in_the_expressions(applied: list[dict[str, Any]]) -> None:
    for policy in (o for o in applied if o["kind"] == POLICY):
        name = policy["metadata"]["name"]

        def checked(name: str = name) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(
                run_kubectl("get", POLICY, name, "-o", "json").stdout
            )
            return found if found.get("status", {}).get("observedGeneration") else {}

        assert until(checked, f"the check of {name}")["status"].get("typeChecking", {}) == {}, name


@needs_helm
@situations(
    "change,words",
    {
        "a good one": (lambda job: None, ""),
        "no queue": (BAD[0], f"metadata.labels must contain {QUEUE}"),
        "an empty queue": (
            lambda job: job["metadata"].update(labels={QUEUE: ""}),
            f"must contain {QUEUE}",
        ),
        "no TTL": (BAD[1], "spec.ttlSecondsAfterFinished is required, and may be at most 3600"),
        "too long a TTL": (spec(ttlSecondsAfterFinished=3601), "may be at most 3600"),
        "deleted at once": (spec(ttlSecondsAfterFinished=0), ""),
        "image": (
            BAD[2],
            f"names the image 'other.invalid/train': images of jobs must be from {REGISTRY}",
        ),
        "a name that begins alike": (
            image(f"{REGISTRY}evil/train"),
            f"names the image '{REGISTRY}evil/train'",
        ),
        "no image": (
            lambda job: job["spec"]["template"]["spec"]["containers"][0].pop("image"),
            "names the image ''",
        ),
        "init container": (init_containers("busybox"), "names the image 'busybox'"),
        "a good init container": (init_containers(f"{REGISTRY}/i"), ""),
        "init containers that are none": (pod(initContainers="no list"), "fails to evaluate"),
        "image volume": (
            pod(volumes=[{"name": "v", "image": {"reference": "other/data:1"}}]),
            "names the image 'other/data:1'",
        ),
        "another volume": (pod(volumes=[{"name": "v", "emptyDir": {}}]), ""),
    },
)
def test_new_job(jobs: Jobs, change: Change, words: str) -> None:
    refusal = jobs.create(change)
    assert words in refusal
    assert bool(refusal) == bool(words)


@needs_helm
def test_queue_changes_only_while_a_job_is_suspended_or_has_ended(
    jobs: Jobs, applied: list[dict[str, Any]]
) -> None:
    job = jobs.make()
    with lifted(jobs, applied, "queue-required", BAD[0]):
        unqueued = jobs.make(BAD[0])
        for refusal in (
            *(jobs.label(job, queue) for queue in ("other", "", None)),
            jobs.label(unqueued, "team"),
        ):
            assert (
                "set spec.suspend to true, change the label, and then set spec.suspend to false"
                in refusal
            )
        assert jobs.label(unqueued, "") == "", "an empty label is none"
    unrelated = {"labels": {"a": "b", QUEUE: "team"}, "finalizers": ["example.com/a"]}
    assert jobs.patch(job, {"metadata": unrelated}) == ""
    assert jobs.patch(job, {"metadata": {"finalizers": None}}) == ""
    assert "set spec.suspend to true" in jobs.patch(
        job, {"metadata": {"labels": {QUEUE: "other"}}, "spec": {"suspend": True}}
    )
    assert jobs.scale(job, 3) == ""
    assert jobs.patch(job, {"spec": {"suspend": True}}) == ""
    assert jobs.label(job, "other") == ""
    assert (
        jobs.patch(job, {"metadata": {"labels": {QUEUE: "team"}}, "spec": {"suspend": False}}) == ""
    )
    assert jobs.label(job, "other")
    assert jobs.patch(job, {"status": ENDED}, "--subresource=status") == ""
    assert jobs.label(job, "other") == ""
    assert f"must contain {QUEUE}" in jobs.label(job, None)
    assert jobs.delete(job) == ""


@needs_helm
def test_namespace_limits_replicas_of_new_jobs_and_of_those_that_are_scaled(jobs: Jobs) -> None:
    job, large = jobs.make(), jobs.make(spec(replicas=12))
    try:
        jobs.limit("4")
        until(lambda: jobs.create(spec(replicas=5)), "the limit")
        refusal = jobs.create(spec(replicas=5))
        assert (
            f"spec.replicas is 5, and a job of namespace {jobs.namespace} may have at most 4"
            in refusal
        )
        assert jobs.create(spec(replicas=4)) == ""
        assert (
            "spec.spares and the larger of spec.replicas and spec.maxReplicas are 5"
            in jobs.create(spec(maxReplicas=4, spares=1))
        )
        assert jobs.create(spec(maxReplicas=3, spares=1)) == ""
        assert "are 17" in jobs.patch(job, {"spec": {"spares": 1}}), "it could be scaled to 16"
        assert "spec.replicas is 6" in jobs.patch(job, {"spec": {"replicas": 6}})
        assert "spec.replicas is 6" in jobs.scale(job, 6)
        assert jobs.scale(job, 4) == ""
        assert jobs.scale(large, 11) == "", "a job that was too large already may shrink"
        assert "spec.replicas is 12" in jobs.scale(large, 12)
        assert jobs.patch(large, {"spec": {"suspend": True}}) == ""
        assert "spec.replicas is 11" in jobs.patch(large, {"spec": {"suspend": False}}), (
            "it begins again"
        )
        spared = jobs.make(without_maximum(replicas=1, spares=3, suspend=True))
        assert jobs.scale(spared, 4) == "", "a Scale says nothing of the spares"
        assert "are 7" in jobs.patch(spared, {"spec": {"suspend": False}})
        assert jobs.patch(spared, {"spec": {"suspend": False, "replicas": 1}}) == ""
        jobs.limit("four")
        until(lambda: "is 'four', which is not a number" in jobs.create(), "the unreadable limit")
        assert "set the label to a number" in jobs.scale(job, 5)
        assert jobs.scale(job, 3) == ""
    finally:
        jobs.limit(None)
    until(lambda: not jobs.create(), "the limit to end")


@needs_helm
def test_job_from_before_a_policy_can_be_changed_in_all_else(
    jobs: Jobs, applied: list[dict[str, Any]]
) -> None:
    with lifted(jobs, applied, "", bad):
        job = jobs.make(bad)
    assert jobs.scale(job, 1) == ""
    assert jobs.patch(job, {"metadata": {"labels": {"a": "b"}}, "spec": {"suspend": True}}) == ""
    pods = {"spec": {"containers": [{"name": "pytorch", "image": "third.invalid/train"}]}}
    refusal = jobs.patch(job, {"spec": {"template": pods}})
    assert "names the image 'third.invalid/train'" in refusal
    assert "may be at most 3600" in jobs.patch(job, {"spec": {"ttlSecondsAfterFinished": 7200}})
    assert jobs.label(job, "team") == ""


@needs_helm
def test_a_job_may_not_lose_its_time_to_live_with_its_template(jobs: Jobs) -> None:
    def of_template(job: dict[str, Any]) -> None:
        del job["spec"]["ttlSecondsAfterFinished"]
        job["spec"] |= {"templateRef": {"name": "any"}, "suspend": True}

    job = jobs.make(of_template)
    assert "spec.ttlSecondsAfterFinished is required" in jobs.patch(
        job, {"spec": {"templateRef": None}}
    )
    assert jobs.patch(job, {"spec": {"templateRef": None, "ttlSecondsAfterFinished": 60}}) == ""
