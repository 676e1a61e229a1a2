from typing import Any

import pytest
from elastic_pytorch_operator.manifests.agent_injection import AgentImage
from elastic_pytorch_operator.spec.job import Job
from hypothesis import given
from hypothesis import strategies as st

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


def test_secrets_for_the_agents_image_come_after_the_templates_own_each_once() -> None:
    own = template()
    own["spec"]["imagePullSecrets"] = [{"name": "mine"}, {"name": "both"}]
    image = AgentImage("example.com/agent:1", pull_secrets=("both", "agent"))
    assert build(image, template=own)["imagePullSecrets"] == [
        {"name": "mine"},
        {"name": "both"},
        {"name": "agent"},
    ]
    assert build(image)["imagePullSecrets"] == [{"name": "both"}, {"name": "agent"}]
    assert "imagePullSecrets" not in build(image, injectAgent=False)
    assert "imagePullSecrets" not in build()


def test_pythonpath_of_an_image_is_not_hidden_from_the_agent() -> None:
    assert paths(build()["containers"][0]) == []


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ([], "/opt/elastic-pytorch"),
        ([{"name": "PYTHONPATH", "value": "/src"}], "/opt/elastic-pytorch:/src"),
        ([{"name": "PYTHONPATH", "value": ""}], "/opt/elastic-pytorch"),
        (
            [
                {
                    "name": "PYTHONPATH",
                    "valueFrom": {"configMapKeyRef": {"name": "paths", "key": "python"}},
                }
            ],
            "/opt/elastic-pytorch:$(ELASTIC_PYTORCH_OWN_PYTHONPATH)",
        ),
    ],
)
def test_command_of_the_users_finds_the_agent_in_front_of_its_own_pythonpath(
    env: list[dict[str, Any]], path: str
) -> None:
    container = build(template=template(command=["torchrun", "train.py"], env=env))["containers"][0]
    assert container["command"] == ["torchrun", "train.py"]
    assert paths(container) == [path]
    own = [
        variable
        for variable in container["env"]
        if variable["name"] == "ELASTIC_PYTORCH_OWN_PYTHONPATH"
    ]
    assert [variable["valueFrom"] for variable in own] == [
        variable["valueFrom"] for variable in env if "valueFrom" in variable
    ]


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
    [
        (None, True),
        ({}, True),
        ({"runAsUser": 1000}, True),
        ({"runAsNonRoot": False}, True),
        ({"runAsUser": 0}, False),
    ],
)
def test_init_container_runs_as_whichever_user_the_pod_names(
    of_pod: dict[str, Any] | None, non_root: bool
) -> None:
    own = template()
    own["spec"]["securityContext"] = of_pod
    pod = build(template=own)
    (init,) = pod["initContainers"]
    assert init["securityContext"]["runAsNonRoot"] is non_root, (
        "a kubelet refuses runAsNonRoot with the pod's runAsUser 0"
    )
    assert not {"runAsUser", "runAsGroup"} & set(init["securityContext"]), "OpenShift assigns them"
    assert pod["securityContext"] == of_pod


@pytest.mark.parametrize(
    ("training", "copying"),
    [
        ({}, None),
        ({"limits": {"nvidia.com/gpu": 1}}, None),
        (
            {"requests": {"cpu": "50m", "memory": "1Gi"}},
            {"requests": {"cpu": "50m", "memory": "1Gi"}},
        ),
        ({"limits": {"cpu": 2}, "claims": [{"name": "gpu"}]}, {"limits": {"cpu": 2}}),
        (
            {
                "requests": {"cpu": 4, "memory": "8Gi"},
                "limits": {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 1},
            },
            {"requests": {"cpu": 4, "memory": "8Gi"}, "limits": {"cpu": 4, "memory": "8Gi"}},
        ),
        ({"requests": {"ephemeral-storage": "1Gi"}}, {"requests": {"ephemeral-storage": "1Gi"}}),
    ],
)
def test_init_container_has_the_resources_of_the_training_container_without_devices(
    training: dict[str, Any], copying: dict[str, Any] | None
) -> None:
    assert (
        build(template=template(resources=training))["initContainers"][0].get("resources")
        == copying
    )


NATIVE = ("cpu", "memory", "ephemeral-storage")
AMOUNTS = st.sampled_from([1, 2, 3, 4, 8])
SOME = st.dictionaries(st.sampled_from(NATIVE), AMOUNTS, max_size=3)


def admitted(container: dict[str, Any], limits: dict[str, Any], quota: set[str]) -> bool:
    """Whether a LimitRange and a ResourceQuota take a container (plugin/pkg/admission).

    Args:
        container: as it is written.
        limits: of the LimitRange, by the names of its fields.
        quota: the resources of which each container must name a request and a limit.
    """
    resources = container.get("resources") or {}
    most = {**limits["default"], **(resources.get("limits") or {})}
    least = {
        **limits["defaultRequest"],
        **(resources.get("limits") or {}),
        **(resources.get("requests") or {}),
    }
    return (
        all(name in least and least[name] >= amount for name, amount in limits["min"].items())
        and all(name in most and most[name] <= amount for name, amount in limits["max"].items())
        and all(
            name in most and name in least and most[name] <= ratio * least[name]
            for name, ratio in limits["maxLimitRequestRatio"].items()
        )
        and all(name in least and name in most for name in quota)
    )


def quality(containers: list[dict[str, Any]]) -> str:
    """The QoS class of a pod (pkg/apis/core/v1/helper/qos)."""
    resources = [container.get("resources") or {} for container in containers]
    if not any(
        set(amounts) & {"cpu", "memory"} for found in resources for amounts in found.values()
    ):
        return "BestEffort"
    guaranteed = all(
        name in (found.get("limits") or {})
        and {**found["limits"], **(found.get("requests") or {})}[name] == found["limits"][name]
        for found in resources
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if guaranteed else "Burstable"


@given(
    st.fixed_dictionaries({}, optional={"requests": SOME, "limits": SOME}),
    st.fixed_dictionaries(
        dict.fromkeys(("min", "max", "default", "defaultRequest", "maxLimitRequestRatio"), SOME)
    ),
    st.sets(st.sampled_from(NATIVE)),
)
def test_what_admits_the_training_container_admits_the_one_that_brings_the_agent(
    resources: dict[str, Any], limits: dict[str, Any], quota: set[str]
) -> None:
    devices = {"nvidia.com/gpu": 1}
    resources["limits"] = {**resources.get("limits", {}), **devices}
    pod = build(template=template(resources=resources))
    (init,), (training,) = pod["initContainers"], pod["containers"]
    assert admitted(init, limits, quota) is admitted(training, limits, quota)
    assert quality([init, training]) == quality([training])


def test_init_containers_of_the_users_come_first() -> None:
    own = {**template(), "spec": {**template()["spec"], "initContainers": [{"name": "download"}]}}
    assert [container["name"] for container in build(template=own)["initContainers"]] == [
        "download",
        "elastic-pytorch-agent",
    ]


@pytest.mark.parametrize(("image", "inject"), [(IMAGE, False), (None, True)])
def test_nothing_is_injected_unless_job_and_operator_can(
    image: AgentImage | None, inject: bool
) -> None:
    pod = build(image, injectAgent=inject)
    assert "initContainers" not in pod
    assert pod["containers"][0]["command"] == ["python3", "-m", "elastic_pytorch.agent"]


def test_template_is_left_as_it_was() -> None:
    job: Job = a_job(
        template=template(command=["torchrun"], env=[{"name": "PYTHONPATH", "value": "/src"}])
    )
    a_worker_pod(job, 0, agent_image=IMAGE)
    assert job.template == template(
        command=["torchrun"], env=[{"name": "PYTHONPATH", "value": "/src"}]
    )
