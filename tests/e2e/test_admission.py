"""What the API server refuses, with which words, before the operator ever sees it."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from tests.paths import ROOT

pytestmark = pytest.mark.e2e

MANIFESTS = ROOT / "tests" / "manifests"
BAD = sorted((MANIFESTS / "bad").glob("*.yaml"))
GOOD = sorted((MANIFESTS / "good").glob("*.yaml"))
FAILING = sorted((MANIFESTS / "failing").glob("*.yaml"))

# No pod of this job ever runs: no node has the label that they ask for.
JOB: dict[str, Any] = {
    "apiVersion": "elasticpytorch.dev/v1alpha1",
    "kind": "ElasticPyTorchJob",
    "metadata": {"name": "admission"},
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


@pytest.fixture
def job(kubectl: Kubectl) -> Iterator[str]:
    kubectl("apply", "-f", "-", input=json.dumps(JOB))
    yield "epj/admission"
    kubectl("delete", "epj/admission", "--ignore-not-found", "--wait=false")


def spec_of(kubectl: Kubectl, job: str) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(kubectl("get", job, "-o", "json").stdout)["spec"]
    return spec


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_manifest_is_refused_with_the_right_words(kubectl: Kubectl, path: Path) -> None:
    text = path.read_text()
    expected = text.partition("\n")[0].removeprefix("# expect: ")
    result = kubectl("apply", "-f", "-", input=text, check=False)
    assert result.returncode != 0, result.stdout
    assert expected in result.stderr
    name = yaml.safe_load(text)["metadata"]["name"]
    assert kubectl("get", "epj", name, "--ignore-not-found", "-o", "name").stdout == ""


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
    until = time.monotonic() + 30
    while running := kubectl(
        "get", "pods", "--field-selector=status.phase!=Failed,status.phase!=Succeeded", "-o", "name"
    ).stdout:
        assert time.monotonic() < until, running
        time.sleep(0.5)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_manifest_is_kept_as_it_is_written(kubectl: Kubectl, path: Path) -> None:
    written = yaml.safe_load(path.read_text())["spec"]
    result = kubectl("apply", "-f", "-", "--dry-run=server", "-o", "json", input=path.read_text())
    stored = json.loads(result.stdout)["spec"]
    assert {name: stored[name] for name in written} == written


def test_defaults_are_filled_in(kubectl: Kubectl) -> None:
    text = (MANIFESTS / "good" / "minimal.yaml").read_text()
    stored = json.loads(kubectl("apply", "-f", "-", "--dry-run=server", "-o", "json", input=text).stdout)["spec"]
    del stored["template"]
    assert stored == {
        "replicas": 1,
        "suspend": False,
        "volumeClaimRetentionPolicy": {"whenDeleted": "Retain"},
        "failurePolicy": {"maxFailures": 3, "onPodLoss": "Replace"},
        "resizePolicy": {"settleSeconds": 1, "minSecondsBetweenResizes": 0, "checkpointWaitSeconds": 0},
        "rendezvous": {"backend": "operator", "port": 29500},
        "injectAgent": True,
        "torchrun": {},
        "cleanPodPolicy": "Running",
    }


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        (5, "must be less than or equal to maxReplicas (4), not 5: lower replicas or raise maxReplicas"),
        (1, "must be greater than or equal to minReplicas (2), not 1: raise replicas or lower minReplicas"),
        (0, "spec.replicas in body should be greater than or equal to 1"),
    ],
)
def test_scaling_out_of_bounds_is_refused(kubectl: Kubectl, job: str, replicas: int, message: str) -> None:
    result = kubectl("scale", job, f"--replicas={replicas}", check=False)
    assert result.returncode != 0
    assert message in result.stderr
    assert spec_of(kubectl, job)["replicas"] == 3


def test_scaling_within_bounds_is_taken(kubectl: Kubectl, job: str) -> None:
    kubectl("scale", job, "--replicas=4")
    assert spec_of(kubectl, job)["replicas"] == 4


def change(kubectl: Kubectl, job: str, spec: dict[str, Any], **options: Any) -> subprocess.CompletedProcess[str]:
    return kubectl("patch", job, "--type=merge", f"--patch={json.dumps({'spec': spec})}", **options)


FIXED = {"minReplicas": None, "maxReplicas": None}


@pytest.mark.parametrize("replicas", [2, 4])
def test_scaling_a_job_of_a_fixed_size_is_refused_with_the_way_to_make_it_elastic(
    kubectl: Kubectl, job: str, replicas: int
) -> None:
    change(kubectl, job, FIXED)
    result = kubectl("scale", job, f"--replicas={replicas}", check=False)
    assert result.returncode != 0
    words = "field is immutable while minReplicas is unset: set spec.minReplicas and spec.maxReplicas to make the job elastic"
    assert words in result.stderr
    assert spec_of(kubectl, job)["replicas"] == 3
    change(kubectl, job, {"minReplicas": 2, "maxReplicas": 4})
    kubectl("scale", job, f"--replicas={replicas}")
    assert spec_of(kubectl, job)["replicas"] == replicas


def test_job_of_a_fixed_size_can_be_scaled_while_it_is_suspended(kubectl: Kubectl, job: str) -> None:
    change(kubectl, job, FIXED | {"suspend": True})
    kubectl("scale", job, "--replicas=5")
    change(kubectl, job, {"suspend": False})
    assert kubectl("scale", job, "--replicas=6", check=False).returncode != 0
    assert spec_of(kubectl, job)["replicas"] == 5


def test_elastic_job_without_a_maximum_can_only_be_scaled_down(kubectl: Kubectl, job: str) -> None:
    change(kubectl, job, {"maxReplicas": None})
    result = kubectl("scale", job, "--replicas=4", check=False)
    assert "may not be raised while maxReplicas is unset: set spec.maxReplicas" in result.stderr
    kubectl("scale", job, "--replicas=2")
    assert spec_of(kubectl, job)["replicas"] == 2


@pytest.mark.parametrize(
    ("path", "patch"),
    [
        ("spec.rendezvous", {"rendezvous": {"port": 29501}}),
        ("spec.injectAgent", {"injectAgent": False}),
        ("spec.torchrun", {"torchrun": {"role": "trainer"}}),
        ("spec.managedBy", {"managedBy": "example.com/other"}),
        (
            "spec.volumeClaimTemplates",
            {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteMany"]}}]},
        ),
    ],
    ids=str,
)
def test_what_running_pods_depend_on_cannot_be_changed(kubectl: Kubectl, job: str, path: str, patch: dict[str, Any]) -> None:
    before = spec_of(kubectl, job)
    result = change(kubectl, job, patch, check=False)
    assert result.returncode != 0
    assert path in result.stderr
    assert "field is immutable: delete the job and create it again" in result.stderr
    assert spec_of(kubectl, job) == before


CHANGES_OF_PODS: list[dict[str, Any]] = [
    {"nprocPerNode": "auto"},
    {"sharedMemorySize": "8Gi"},
    {"template": {"metadata": {"labels": {"team": "language"}}}},
    {"template": {"spec": {"terminationGracePeriodSeconds": 60}}},
    {"template": {"spec": {"nodeSelector": None}}},
]


@pytest.mark.parametrize("patch", CHANGES_OF_PODS, ids=str)
def test_what_pods_are_made_from_cannot_be_changed_while_there_are_some(
    kubectl: Kubectl, job: str, patch: dict[str, Any]
) -> None:
    before = spec_of(kubectl, job)
    result = change(kubectl, job, patch, check=False)
    assert result.returncode != 0
    words = "template, nprocPerNode and sharedMemorySize are immutable unless the condition Suspended is True"
    assert words in result.stderr
    assert spec_of(kubectl, job) == before


@pytest.mark.parametrize("patch", CHANGES_OF_PODS, ids=str)
def test_what_pods_are_made_from_can_be_changed_while_the_job_is_suspended(
    kubectl: Kubectl, job: str, patch: dict[str, Any]
) -> None:
    before = spec_of(kubectl, job)
    change(kubectl, job, {"suspend": True})
    kubectl("wait", "--for=condition=Suspended", job, "--timeout=90s")
    change(kubectl, job, patch)
    change(kubectl, job, {"suspend": False})
    kubectl("wait", "--for=condition=Suspended=False", job, "--timeout=90s")
    assert spec_of(kubectl, job) != before
    assert change(kubectl, job, {"nprocPerNode": 3}, check=False).returncode != 0


def test_the_rest_can_be_changed(kubectl: Kubectl, job: str) -> None:
    changes = {
        "replicas": 5,
        "minReplicas": 1,
        "maxReplicas": 6,
        "failurePolicy": {"maxFailures": 0, "backoffLimit": 4, "onPodLoss": "FailJob"},
        "suspend": True,
        "activeDeadlineSeconds": 60,
        "resizePolicy": {
            "settleSeconds": 5,
            "minSecondsBetweenResizes": 60,
            "checkpointWaitSeconds": 10,
            "checkpointPath": "/checkpoints",
        },
        "cleanPodPolicy": "All",
    }
    change(kubectl, job, changes)
    spec = spec_of(kubectl, job)
    assert {name: spec[name] for name in changes} == changes


def test_explain_shows_the_manual(kubectl: Kubectl) -> None:
    text = " ".join(kubectl("explain", "epj.spec").stdout.split())
    assert "The number of workers that are wanted." in text
    assert "The container named `pytorch`, or the only one, trains." in text
