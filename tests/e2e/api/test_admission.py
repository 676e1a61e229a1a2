"""What the API server refuses, with which words, before the operator ever sees it."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from tests.e2e.api_requests import Answer, Resource
from tests.e2e.job_under_test import run_kubectl
from tests.paths import ROOT
from tests.waiting import until

pytestmark = pytest.mark.e2e

MANIFESTS = ROOT / "tests" / "manifests"
BAD = sorted((MANIFESTS / "bad").glob("*.yaml"))
GOOD = sorted((MANIFESTS / "good").glob("*.yaml"))
FAILING = sorted((MANIFESTS / "failing").glob("*.yaml"))

# No pod of this job ever runs: no node has the label that they ask for.
JOB: dict[str, Any] = {
    "apiVersion": "elasticpytorch.dev/v1alpha1",
    "kind": "ElasticPyTorchJob",
    "spec": {
        "replicas": 3,
        "minReplicas": 2,
        "maxReplicas": 4,
        "template": {
            "spec": {
                "nodeSelector": {"example.com/no-such-node": "true"},
                "containers": [{"name": "pytorch", "image": "registry.invalid/worker", "args": ["train.py"]}],
            }
        },
    },
}


class Kubectl(Protocol):
    def __call__(
        self,
        *args: str,
        input: str | None = None,  # noqa: A002  named as in subprocess.run
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A job that stays as it is, however often the operator looks at it."""

    name: str
    jobs: Resource

    @property
    def spec(self) -> dict[str, Any]:
        return self.jobs.get(self.name).spec

    def change(self, **spec: Any) -> Answer:
        return self.jobs.patch(self.name, {"spec": spec})

    def scale(self, replicas: int) -> subprocess.CompletedProcess[str]:
        return self.kubectl("scale", f"epj/{self.name}", f"--replicas={replicas}", check=False)

    def kubectl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return run_kubectl("-n", self.jobs.namespace, *arguments, check=check)


@pytest.fixture
def jobs(shared_namespace: str) -> Resource:
    return Resource("elasticpytorch.dev/v1alpha1", "elasticpytorchjobs", shared_namespace)


@pytest.fixture
def job(jobs: Resource) -> Iterator[Job]:
    name = f"admission-{os.urandom(2).hex()}"
    made = jobs.create({**JOB, "metadata": {"name": name}})
    assert made.code == 201, made.words
    yield Job(name, jobs)
    jobs.delete(name)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_manifest_is_refused_with_the_right_words(jobs: Resource, path: Path) -> None:
    text = path.read_text()
    expected = text.partition("\n")[0].removeprefix("# expect: ")
    manifest = yaml.safe_load(text)
    answer = jobs.create(manifest)
    assert answer.code in (400, 422), answer.body
    assert expected in answer.words
    assert jobs.get(manifest["metadata"]["name"]).code == 404


def test_kubectl_shows_the_words_of_the_api_server(shared_namespace: str) -> None:
    text = (MANIFESTS / "bad" / "replicas-zero.yaml").read_text()
    result = run_kubectl("-n", shared_namespace, "apply", "-f", "-", input=text, check=False)
    assert result.returncode != 0, result.stdout
    assert text.partition("\n")[0].removeprefix("# expect: ") in result.stderr


@pytest.mark.parametrize("path", FAILING, ids=lambda path: path.stem)
def test_manifest_that_only_shows_when_it_runs_fails_with_the_right_words(kubectl: Kubectl, path: Path) -> None:
    text = path.read_text()
    expected = text.partition("\n")[0].removeprefix("# expect: ")
    name = yaml.safe_load(text)["metadata"]["name"]
    kubectl("apply", "-f", "-", input=text)
    kubectl("wait", "--for=condition=Failed", f"epj/{name}", "--timeout=60s")
    status = json.loads(kubectl("get", "epj", name, "-o", "json").stdout)["status"]
    [message] = [condition["message"] for condition in status["conditions"] if condition["type"] == "Failed"]
    assert expected in message
    running = ("get", "pods", "--field-selector=status.phase!=Failed,status.phase!=Succeeded", "-o", "name")
    until(lambda: not kubectl(*running).stdout, lambda: f"pods to end: {kubectl(*running).stdout}")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_manifest_is_kept_as_it_is_written(jobs: Resource, path: Path) -> None:
    manifest = yaml.safe_load(path.read_text())
    stored, written = jobs.create(manifest, dry_run=True).spec, manifest["spec"]
    assert {name: stored[name] for name in written} == written


def test_only_objects_and_what_no_template_has_are_filled_in(jobs: Resource) -> None:
    manifest = yaml.safe_load((MANIFESTS / "good" / "minimal.yaml").read_text())
    stored = jobs.create(manifest, dry_run=True).spec
    del stored["template"]
    assert stored == {
        "replicas": 1,
        "suspend": False,
        "sharedVolumeClaimRetentionPolicy": {"whenDeleted": "Retain"},
        "failurePolicy": {},
        "resizePolicy": {},
        "scheduling": {},
        "rendezvous": {},
        "torchrun": {},
    }


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        (5, "must be less than or equal to maxReplicas (4), not 5: lower replicas or raise maxReplicas"),
        (1, "must be greater than or equal to minReplicas (2), not 1: raise replicas or lower minReplicas"),
        (0, "spec.replicas in body should be greater than or equal to 1"),
    ],
)
def test_scaling_out_of_bounds_is_refused(job: Job, replicas: int, message: str) -> None:
    result = job.scale(replicas)
    assert result.returncode != 0
    assert message in result.stderr
    assert job.spec["replicas"] == 3


def test_scaling_within_bounds_is_taken(job: Job) -> None:
    assert job.scale(4).returncode == 0
    assert job.spec["replicas"] == 4


FIXED = {"minReplicas": None, "maxReplicas": None}


@pytest.mark.parametrize("replicas", [2, 4])
def test_scaling_a_job_of_a_fixed_size_is_refused_with_the_way_to_make_it_elastic(job: Job, replicas: int) -> None:
    assert job.change(**FIXED).code == 200
    result = job.scale(replicas)
    assert result.returncode != 0
    words = "field is immutable while minReplicas is unset: set spec.minReplicas and spec.maxReplicas to make the job elastic"
    assert words in result.stderr
    assert job.spec["replicas"] == 3
    assert job.change(minReplicas=2, maxReplicas=4).code == 200
    assert job.scale(replicas).returncode == 0
    assert job.spec["replicas"] == replicas


def test_job_of_a_fixed_size_can_be_scaled_while_it_is_suspended(job: Job) -> None:
    assert job.change(**FIXED, suspend=True).code == 200
    assert job.scale(5).returncode == 0
    assert job.change(suspend=False).code == 200
    assert job.scale(6).returncode != 0
    assert job.spec["replicas"] == 5


def test_elastic_job_without_a_maximum_can_only_be_scaled_down(job: Job) -> None:
    assert job.change(maxReplicas=None).code == 200
    assert "may not be raised while maxReplicas is unset: set spec.maxReplicas" in job.scale(4).stderr
    assert job.scale(2).returncode == 0
    assert job.spec["replicas"] == 2


@pytest.mark.parametrize(
    ("path", "patch"),
    [
        ("spec.managedBy", {"managedBy": "example.com/other"}),
        (
            "spec.sharedVolumeClaims",
            {"sharedVolumeClaims": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteMany"]}}]},
        ),
    ],
    ids=str,
)
def test_what_outlives_pods_cannot_be_changed(job: Job, path: str, patch: dict[str, Any]) -> None:
    before = job.spec
    answer = job.change(**patch)
    assert answer.code == 422
    assert path in answer.words
    assert "field is immutable: delete the job and create it again" in answer.words
    assert job.spec == before


CHANGES_OF_PODS: list[tuple[str, dict[str, Any]]] = [
    ("nprocPerNode", {"nprocPerNode": "auto"}),
    ("sharedMemorySize", {"sharedMemorySize": "8Gi"}),
    ("template", {"template": {"metadata": {"labels": {"team": "language"}}}}),
    ("template", {"template": {"spec": {"terminationGracePeriodSeconds": 60}}}),
    ("template", {"template": {"spec": {"nodeSelector": None}}}),
    ("scheduling.gang", {"scheduling": {"gang": {"scheduler": "Coscheduling"}}}),
    ("rendezvous", {"rendezvous": {"port": 29501}}),
    ("rendezvous", {"rendezvous": {"backend": "c10d"}}),
    ("injectAgent", {"injectAgent": False}),
    ("torchrun", {"torchrun": {"logDir": "/logs"}}),
    ("resizePolicy.checkpointPath", {"resizePolicy": {"checkpointPath": "/checkpoints"}}),
]


@pytest.mark.parametrize(("field", "patch"), CHANGES_OF_PODS, ids=str)
def test_what_pods_are_made_from_cannot_be_changed_while_there_are_some(job: Job, field: str, patch: dict[str, Any]) -> None:
    before = job.spec
    answer = job.change(**patch)
    assert answer.code == 422
    assert f"spec.{field}: " in answer.words
    assert "field is immutable unless the condition Suspended is True" in answer.words
    assert job.spec == before


@pytest.mark.parametrize("patch", [patch for _, patch in CHANGES_OF_PODS], ids=str)
def test_what_pods_are_made_from_can_be_changed_while_the_job_is_suspended(job: Job, patch: dict[str, Any]) -> None:
    before = job.spec
    assert job.change(suspend=True).code == 200
    job.kubectl("wait", "--for=condition=Suspended", f"epj/{job.name}", "--timeout=90s")
    assert job.change(**patch).code == 200
    assert job.change(suspend=False).code == 200
    job.kubectl("wait", "--for=condition=Suspended=False", f"epj/{job.name}", "--timeout=90s")
    assert job.spec != before
    assert job.change(nprocPerNode=3).code == 422


def test_the_rest_can_be_changed(job: Job) -> None:
    changes = {
        "replicas": 5,
        "minReplicas": 1,
        "maxReplicas": 6,
        "failurePolicy": {"maxFailures": 0, "backoffLimit": 4, "onPodLoss": "FailJob"},
        "suspend": True,
        "activeDeadlineSeconds": 60,
        "resizePolicy": {"settleSeconds": 5, "minSecondsBetweenGrowths": 60, "checkpointWaitSeconds": 0},
        "cleanPodPolicy": "All",
    }
    assert job.change(**changes).code == 200
    spec = job.spec
    assert {name: spec[name] for name in changes} == changes


def test_explain_shows_the_manual() -> None:
    text = " ".join(run_kubectl("explain", "epj.spec").stdout.split())
    assert "The number of workers that are wanted." in text
    assert "The container named `pytorch`, or the only one, trains." in text
