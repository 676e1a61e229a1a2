"""What the API server refuses, with which words, before the operator ever sees it."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.api_requests import Answer, Resource
from tests.e2e.job_under_test import JobUnderTest, run_kubectl
from tests.paths import ROOT
from tests.waiting import until

pytestmark = pytest.mark.e2e

MANIFESTS = ROOT / "tests" / "manifests"
GOOD = sorted((MANIFESTS / "good").glob("*.yaml"))
# How kubectl begins what it says of each file: it goes on after a refusal.
OF_A_FILE = re.compile(
    r'^(?:Error from server \(\w+\): )?[Ee]rror when \w+ "(.+?)": ', re.MULTILINE
)

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
                "containers": [
                    {"name": "pytorch", "image": "registry.invalid/worker", "args": ["train.py"]}
                ],
            }
        },
    },
}


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


def expected_words(folder: str) -> dict[Path, str]:
    """What the first line of each manifest of a folder says that users are told."""
    paths = sorted((MANIFESTS / folder).glob("*.yaml"))
    assert paths
    return {path: path.read_text().partition("\n")[0].removeprefix("# expect: ") for path in paths}


def test_bad_manifests_are_refused_and_kubectl_shows_the_right_words(jobs: Resource) -> None:
    done = run_kubectl("-n", jobs.namespace, "create", "-f", str(MANIFESTS / "bad"), check=False)
    _, *told = OF_A_FILE.split(done.stderr)
    refusals = dict(zip(told[::2], told[1::2], strict=True))
    wanted = expected_words("bad")
    faults = {
        path.name: refusals.get(str(path))
        for path, words in wanted.items()
        if words not in refusals.get(str(path), "")
    }
    assert not faults
    assert len(refusals) == len(wanted)
    assert done.stdout == "", "none was created"
    bad = {yaml.safe_load(path.read_text())["metadata"]["name"] for path in wanted}
    assert not bad & {job["metadata"]["name"] for job in jobs.list("")}


def fault_of(status: dict[str, Any]) -> str:
    """The message of a job that has failed, or waits for a valid spec; empty: it does neither."""
    faults = [
        condition["message"]
        for condition in status.get("conditions", ())
        if (condition["type"], condition["status"]) == ("Failed", "True")
        or condition["reason"] == "InvalidSpec"
    ]
    return str(faults[0]) if faults else ""


def test_manifests_that_only_show_when_they_run_are_at_fault_with_the_right_words(
    namespace: str,
) -> None:
    run_kubectl("-n", namespace, "apply", "-f", str(MANIFESTS / "failing"))
    faults = {}
    for path, words in expected_words("failing").items():
        job = JobUnderTest(yaml.safe_load(path.read_text())["metadata"]["name"], namespace)
        message = fault_of(
            job.until(lambda status: fault_of(status) != "", f"the fault of {job.name}")
        )
        if words not in message:
            faults[path.name] = message
    assert not faults
    pods = Resource("v1", "pods", namespace)

    def running() -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in pods.list("")
            if pod["status"]["phase"] not in ("Failed", "Succeeded")
        ]

    until(lambda: not running(), lambda: f"pods to end: {running()}")


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
    }


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        (
            5,
            "must be less than or equal to maxReplicas (4), not 5: "
            "lower replicas or raise maxReplicas",
        ),
        (
            1,
            "must be greater than or equal to minReplicas (2), not 1: "
            "raise replicas or lower minReplicas",
        ),
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
def test_scaling_a_job_of_a_fixed_size_is_refused_with_the_way_to_make_it_elastic(
    job: Job, replicas: int
) -> None:
    assert job.change(**FIXED).code == 200
    result = job.scale(replicas)
    assert result.returncode != 0
    words = (
        "field is immutable while minReplicas is unset: "
        "set spec.minReplicas and spec.maxReplicas to make the job elastic"
    )
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
    assert (
        "may not be raised while maxReplicas is unset: set spec.maxReplicas" in job.scale(4).stderr
    )
    assert job.scale(2).returncode == 0
    assert job.spec["replicas"] == 2


@pytest.mark.parametrize(
    ("path", "patch"),
    [
        ("spec.managedBy", {"managedBy": "example.com/other"}),
        (
            "spec.sharedVolumeClaims",
            {
                "sharedVolumeClaims": [
                    {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteMany"]}}
                ]
            },
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
    ("scheduling.gangScheduler", {"scheduling": {"gangScheduler": "Coscheduling"}}),
    ("rendezvous", {"rendezvous": {"port": 29501}}),
    ("rendezvous", {"rendezvous": {"backend": "c10d"}}),
    ("injectAgent", {"injectAgent": False}),
    ("resizePolicy.checkpointPath", {"resizePolicy": {"checkpointPath": "/checkpoints"}}),
]


def test_what_pods_are_made_from_cannot_be_changed_while_there_are_some(job: Job) -> None:
    before = job.spec
    words = "field is immutable unless the condition Suspended is True"
    answers = [(field, patch, job.change(**patch)) for field, patch in CHANGES_OF_PODS]
    faults = [
        (patch, answer.words)
        for field, patch, answer in answers
        if answer.code != 422 or f"spec.{field}: " not in answer.words or words not in answer.words
    ]
    assert not faults
    assert job.spec == before


def test_what_pods_are_made_from_can_be_changed_while_the_job_is_suspended(job: Job) -> None:
    assert job.change(suspend=True).code == 200
    job.kubectl("wait", "--for=condition=Suspended", f"epj/{job.name}", "--timeout=90s")
    before = job.spec
    # One by one on the same job: some cannot be had together.
    answers = [
        (patch, job.jobs.patch(job.name, {"spec": patch}, dry_run=True))
        for _, patch in CHANGES_OF_PODS
    ]
    faults = [
        (patch, answer.words)
        for patch, answer in answers
        if answer.code != 200 or answer.spec == before
    ]
    assert not faults
    assert job.change(nprocPerNode="auto").code == 200
    assert job.change(suspend=False).code == 200
    job.kubectl("wait", "--for=condition=Suspended=False", f"epj/{job.name}", "--timeout=90s")
    assert job.spec["nprocPerNode"] == "auto"
    assert job.change(nprocPerNode=3).code == 422


def test_the_rest_can_be_changed(job: Job) -> None:
    changes = {
        "replicas": 5,
        "minReplicas": 1,
        "maxReplicas": 6,
        "failurePolicy": {"maxFailures": 0, "backoffLimit": 4, "onPodLoss": "FailJob"},
        "suspend": True,
        "activeDeadlineSeconds": 60,
        "resizePolicy": {
            "settleSeconds": 5,
            "minSecondsBetweenGrowths": 60,
            "checkpointWaitSeconds": 0,
        },
        "cleanPodPolicy": "All",
    }
    assert job.change(**changes).code == 200
    spec = job.spec
    assert {name: spec[name] for name in changes} == changes


def test_explain_shows_the_manual() -> None:
    text = " ".join(run_kubectl("explain", "epj.spec").stdout.split())
    assert "The number of workers that are wanted." in text
    assert "The container named `pytorch`, or the only one, trains." in text
