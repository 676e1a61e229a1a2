"""What a pod looks like into which the agent is brought."""

from typing import Any

import pytest
from elastic_pytorch_operator.manifests.agent_injection import AgentImage
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import a_job, a_worker_pod

IMAGE = AgentImage("example.com/agent:1", "IfNotPresent")


def build(image: AgentImage | None = IMAGE, **spec: Any) -> dict[str, Any]:
    pod: dict[str, Any] = a_worker_pod(a_job(**spec), 0, agent_image=image)["spec"]
    return pod


def template(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "pytorch", "image": "torch", **container}]}}


def paths(container: dict[str, Any]) -> list[str]:
    return [variable["value"] for variable in container["env"] if variable["name"] == "PYTHONPATH"]


def test_agent_is_copied_out_of_its_image_to_where_it_is_started() -> None:
    pod = build()
    (init,), (container,) = pod["initContainers"], pod["containers"]
    assert (init["image"], init["imagePullPolicy"]) == ("example.com/agent:1", "IfNotPresent")
    (volume,) = [volume for volume in pod["volumes"] if "emptyDir" in volume]
    assert init["volumeMounts"] == [{"name": volume["name"], "mountPath": init["args"][0]}]
    assert "command" not in init, "the image knows how to copy"
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == volume["name"]]
    assert mount["readOnly"] is True
    assert container["command"] == ["python3", mount["mountPath"]]


def test_pythonpath_of_an_image_is_not_hidden_from_the_agent() -> None:
    assert paths(build()["containers"][0]) == []


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ([], "/opt/elastic-pytorch"),
        ([{"name": "PYTHONPATH", "value": "/src"}], "/opt/elastic-pytorch:/src"),
        ([{"name": "PYTHONPATH", "value": ""}], "/opt/elastic-pytorch"),
        (
            [{"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "paths", "key": "python"}}}],
            "/opt/elastic-pytorch:$(ELASTIC_PYTORCH_OWN_PYTHONPATH)",
        ),
    ],
)
def test_command_of_the_users_finds_the_agent_in_front_of_its_own_pythonpath(env: list[dict[str, Any]], path: str) -> None:
    container = build(template=template(command=["torchrun", "train.py"], env=env))["containers"][0]
    assert container["command"] == ["torchrun", "train.py"]
    assert paths(container) == [path]
    own = [variable for variable in container["env"] if variable["name"] == "ELASTIC_PYTORCH_OWN_PYTHONPATH"]
    assert [variable["valueFrom"] for variable in own] == [variable["valueFrom"] for variable in env if "valueFrom" in variable]


def test_init_container_satisfies_the_restricted_pod_security_standard() -> None:
    context = build()["initContainers"][0]["securityContext"]
    assert context == {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(
    ("of_pod", "non_root"),
    [(None, True), ({}, True), ({"runAsUser": 1000}, True), ({"runAsNonRoot": False}, True), ({"runAsUser": 0}, False)],
)
def test_init_container_runs_as_whichever_user_the_pod_names(of_pod: dict[str, Any] | None, non_root: bool) -> None:
    own = template()
    own["spec"]["securityContext"] = of_pod
    pod = build(template=own)
    (init,) = pod["initContainers"]
    assert init["securityContext"]["runAsNonRoot"] is non_root, "a kubelet refuses runAsNonRoot with the pod's runAsUser 0"
    assert not {"runAsUser", "runAsGroup"} & set(init["securityContext"]), "OpenShift assigns them"
    assert pod["securityContext"] == of_pod


@pytest.mark.parametrize(
    ("training", "copying"),
    [
        ({}, {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}),
        ({"limits": {"nvidia.com/gpu": 1}}, {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}),
        ({"requests": {"cpu": "50m", "memory": "1Gi"}}, {"requests": {"cpu": "50m", "memory": "1Gi"}}),
        (
            {"requests": {"cpu": 4, "memory": "8Gi"}, "limits": {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 1}},
            {"requests": {"cpu": 4, "memory": "8Gi"}, "limits": {"cpu": 4, "memory": "8Gi"}},
        ),
    ],
)
def test_pod_keeps_its_size_and_qos_class(training: dict[str, Any], copying: dict[str, Any]) -> None:
    assert build(template=template(resources=training))["initContainers"][0]["resources"] == copying


def test_init_containers_of_the_users_come_first() -> None:
    own = {**template(), "spec": {**template()["spec"], "initContainers": [{"name": "download"}]}}
    assert [container["name"] for container in build(template=own)["initContainers"]] == ["download", "elastic-pytorch-agent"]


@pytest.mark.parametrize(("image", "inject"), [(IMAGE, False), (None, True)])
def test_nothing_is_injected_unless_job_and_operator_can(image: AgentImage | None, inject: bool) -> None:
    pod = build(image, injectAgent=inject)
    assert "initContainers" not in pod
    assert pod["containers"][0]["command"] == ["python3", "-m", "elastic_pytorch.agent"]


def test_template_is_left_as_it_was() -> None:
    job: Job = a_job(template=template(command=["torchrun"], env=[{"name": "PYTHONPATH", "value": "/src"}]))
    a_worker_pod(job, 0, agent_image=IMAGE)
    assert job.template == template(command=["torchrun"], env=[{"name": "PYTHONPATH", "value": "/src"}])
