"""What the API server refuses, with which words, before the operator ever sees it."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

pytestmark = pytest.mark.e2e

MANIFESTS = Path(__file__).parents[1] / "manifests"
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
        "minReplicas": 1,
        "nprocPerNode": 1,
        "suspend": False,
        "managedBy": "",
        "failurePolicy": {"maxFailures": 3, "onPodLoss": "Replace"},
        "resizePolicy": {"settleSeconds": 1, "checkpointWaitSeconds": 0},
        "rendezvous": {"backend": "operator", "port": 29500},
        "injectAgent": True,
        "torchrun": {},
        "cleanPodPolicy": "Running",
    }


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        (5, "replicas (5) must not be more than maxReplicas (4): ask for fewer workers or raise maxReplicas first"),
        (1, "replicas (1) must not be less than minReplicas (2): ask for more workers or lower minReplicas first"),
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


@pytest.mark.parametrize(
    ("path", "patch"),
    [
        ("spec.rendezvous", {"rendezvous": {"port": 29501}}),
        ("spec.nprocPerNode", {"nprocPerNode": "auto"}),
        ("spec.injectAgent", {"injectAgent": False}),
        ("spec.torchrun", {"torchrun": {"role": "trainer"}}),
        ("spec.template", {"template": {"metadata": {"labels": {"team": "language"}}}}),
        ("spec.template", {"template": {"spec": {"terminationGracePeriodSeconds": 60}}}),
        ("spec.template", {"template": {"spec": {"nodeSelector": None}}}),
    ],
    ids=str,
)
def test_what_running_pods_depend_on_cannot_be_changed(kubectl: Kubectl, job: str, path: str, patch: dict[str, Any]) -> None:
    before = spec_of(kubectl, job)
    result = kubectl("patch", job, "--type=merge", f"--patch={json.dumps({'spec': patch})}", check=False)
    assert result.returncode != 0
    assert f"{path}: Forbidden: cannot be changed: delete the job and create it again" in result.stderr
    assert spec_of(kubectl, job) == before


def test_the_rest_can_be_changed(kubectl: Kubectl, job: str) -> None:
    changes = {
        "replicas": 5,
        "minReplicas": 1,
        "maxReplicas": 6,
        "failurePolicy": {"maxFailures": 0, "onPodLoss": "FailJob"},
        "suspend": True,
        "activeDeadlineSeconds": 60,
        "resizePolicy": {"settleSeconds": 5, "checkpointWaitSeconds": 10, "checkpointPath": "/checkpoints"},
        "cleanPodPolicy": "All",
    }
    kubectl("patch", job, "--type=merge", f"--patch={json.dumps({'spec': changes})}")
    spec = spec_of(kubectl, job)
    assert {name: spec[name] for name in changes} == changes


def test_explain_shows_the_manual(kubectl: Kubectl) -> None:
    text = " ".join(kubectl("explain", "epj.spec").stdout.split())
    assert "How many workers are wanted, from `minReplicas` to `maxReplicas`." in text
    assert "The container named `pytorch`, or the only one, trains." in text
