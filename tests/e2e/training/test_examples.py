"""Examples that no other test runs, each to its end, and the agent beside nothing but torch."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from measure.kind_cluster import read_example

from tests.e2e.job_under_test import JobUnderTest, StartJob, run_kubectl
from tests.paths import ROOT

pytestmark = pytest.mark.e2e

FOLDER = ROOT / "examples" / "torchrun"
PROCESSES = {
    "single-node": 2,
    "fixed-size": 2,
    "elastic": 3,
    "command": 2,
    "module": 2,
    "program": 2,
}

# Where the worker's image has the agent installed: with an empty folder in its place, the image has
# only torch.
INSTALLED = "/usr/local/lib/python3.13/dist-packages"


def logs(job: JobUnderTest) -> str:
    return "\n".join("\n".join(job.logs(pod["metadata"]["name"])) for pod in job.pods())


def apply(namespace: str, manifest: dict[str, Any]) -> JobUnderTest:
    run_kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(manifest))
    return JobUnderTest(manifest["metadata"]["name"], namespace)


def assert_trained(job: JobUnderTest, world: int) -> None:
    """All ranks have been there, to the last epoch."""
    text = logs(job)
    assert {int(rank) for rank in re.findall(rf"rank (\d+) of {world}, local rank", text)} == set(
        range(world)
    )
    assert "epoch 20 of 20" in text


@pytest.mark.long
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_job_for_each_way_to_run_torchrun(namespace: str, path: Path) -> None:
    job = apply(namespace, read_example(path))
    job.until_complete()
    assert_trained(job, PROCESSES[path.stem])


# As OpenShift does; the group is root's.
ASSIGNED_USER = {"runAsNonRoot": True, "runAsUser": 1000740000, "fsGroup": 1000740000}
SECCOMP = {"seccompProfile": {"type": "RuntimeDefault"}}


def without_agent(manifest: dict[str, Any]) -> dict[str, Any]:
    pod = manifest["spec"]["template"]["spec"]
    pod["containers"][0]["volumeMounts"].append({"name": "nothing", "mountPath": INSTALLED})
    pod["volumes"].append({"name": "nothing", "emptyDir": {}})
    return manifest


@pytest.mark.parametrize("name", ["command", pytest.param("elastic", marks=pytest.mark.long)])
def test_the_agent_comes_into_an_image_that_has_only_torch_for_an_assigned_user(
    namespace: str, name: str
) -> None:
    run_kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    manifest = without_agent(read_example(FOLDER / f"{name}.yaml"))
    pod_spec = manifest["spec"]["template"]["spec"]
    pod_spec["volumes"][0] = {"name": "checkpoints", "emptyDir": {}}
    pod_spec["securityContext"] = SECCOMP | ASSIGNED_USER
    job = apply(namespace, manifest)
    job.until_complete()
    assert_trained(job, PROCESSES[name])
    for pod in job.pods():
        [init] = pod["status"]["initContainerStatuses"]
        terminated = init["state"]["terminated"]
        assert terminated["exitCode"] == 0
        print("init container:", terminated["startedAt"], terminated["finishedAt"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("standard", "user"),
    [
        pytest.param(
            "restricted", {"runAsNonRoot": True, "runAsUser": 1000}, id="the templates user"
        ),
        pytest.param("restricted", {"runAsNonRoot": True}, id="the images own user"),
        pytest.param("restricted", ASSIGNED_USER, id="an assigned user"),
        pytest.param("baseline", {"runAsUser": 0}, id="root"),
    ],
)
def test_pod_security_lets_the_pods_in_and_the_agent_is_copied_for_any_user(
    namespace: str, standard: str, user: dict[str, Any]
) -> None:
    run_kubectl("label", "namespace", namespace, f"pod-security.kubernetes.io/enforce={standard}")
    manifest = read_example(FOLDER / "single-node.yaml")
    pod = manifest["spec"]["template"]["spec"]
    pod["volumes"][0] = {"name": "checkpoints", "emptyDir": {}}
    pod["securityContext"] = SECCOMP | user
    apply(namespace, manifest).until_complete()


@pytest.mark.long
def test_without_injection_an_image_without_the_agent_fails_and_says_so(namespace: str) -> None:
    manifest = without_agent(read_example(FOLDER / "single-node.yaml"))
    manifest["spec"] |= {"injectAgent": False, "failurePolicy": {"maxFailures": 0}}
    job = apply(namespace, manifest)
    job.until(lambda status: status.get("state") == "Failed", "the job's failure", 60)
    assert "elastic_pytorch" in job.condition("Failed")["message"]


@pytest.mark.long
def test_option_that_the_images_torch_lacks_fails_the_job_with_its_name(
    start_job: StartJob,
) -> None:
    def set_option(pod: dict[str, Any]) -> None:
        pod["containers"][0].setdefault("env", []).append(
            {"name": "PET_VIRTUAL_LOCAL_RANK", "value": "1"}
        )

    job = start_job(replicas=1, change_pod=set_option, failurePolicy={"maxFailures": 0})
    job.until(lambda status: status.get("state") == "Failed", "the job's failure", 60)
    assert "PET_VIRTUAL_LOCAL_RANK" in job.condition("Failed")["message"]


def test_template_in_the_way_of_the_agents_volume_is_named(namespace: str) -> None:
    manifest = read_example(FOLDER / "single-node.yaml")
    manifest["spec"]["template"]["spec"]["volumes"].append(
        {"name": "elastic-pytorch-agent", "emptyDir": {}}
    )
    job = apply(namespace, manifest)
    job.until(lambda status: status.get("state") == "Failed", "the job's failure", 60)
    assert "elastic-pytorch-agent" in job.condition("Failed")["message"]
