"""The PodGroup of a job, and its labels on pods, as each scheduler's source reads them."""

from typing import Any

import pytest
from elastic_pytorch_operator.manifests.pod_group import pod_group
from elastic_pytorch_operator.manifests.stock_pods import store_pod
from elastic_pytorch_operator.spec.job import Job, parse_job

from tests.operator.builders import a_manifest, a_stock_pod, a_worker_pod

RESOURCES = {"requests": {"cpu": "1500m", "memory": "2Gi"}, "limits": {"nvidia.com/gpu": "2"}}


def a_gang(scheduler: str, pod: dict[str, Any] | None = None) -> Job:
    manifest = a_manifest(replicas=4, minimum=3, scheduling={"gangScheduler": scheduler})
    manifest["spec"]["template"]["spec"] |= {"priorityClassName": "high", **(pod or {})}
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = RESOURCES
    return parse_job(manifest)


@pytest.mark.parametrize(
    ("scheduler", "api_version", "spec"),
    [
        (
            "Coscheduling",
            "scheduling.x-k8s.io/v1alpha1",
            {
                "minMember": 3,
                "minResources": {"cpu": "4500m", "memory": "6442450944", "nvidia.com/gpu": "6"},
            },
        ),
        (
            "Kubernetes",
            "scheduling.k8s.io/v1beta1",
            {"schedulingPolicy": {"gang": {"minCount": 3}}, "priorityClassName": "high"},
        ),
    ],
)
def test_pod_group_has_the_form_that_its_scheduler_expects(
    scheduler: str, api_version: str, spec: dict[str, Any]
) -> None:
    job = a_gang(scheduler)
    assert job.scheduling.gang is not None
    group = pod_group(job, job.scheduling.gang)
    assert (group["apiVersion"], group["kind"]) == (api_version, "PodGroup")
    assert (group["metadata"]["name"], group["metadata"]["namespace"]) == ("lm", "default")
    [owner] = group["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ("uid-lm", True)
    assert group["spec"] == spec


def test_pods_name_their_group_and_their_scheduler() -> None:
    plain, job = a_worker_pod()["metadata"], a_gang("Coscheduling")
    group = {"scheduling.x-k8s.io/pod-group": "lm"}
    for pod in (a_worker_pod(job), a_stock_pod(job)):
        assert pod["spec"]["schedulerName"] == "scheduler-plugins-scheduler"
        ours = {
            key: value
            for key, value in pod["metadata"]["labels"].items()
            if "elasticpytorch.dev" not in key
        }
        assert ours == group | {
            key: value for key, value in plain["labels"].items() if "elasticpytorch.dev" not in key
        }
        assert pod["metadata"]["annotations"] == plain["annotations"]


def test_pods_name_the_group_of_the_built_in_scheduler_in_a_field() -> None:
    plain = a_worker_pod()["metadata"]
    theirs = {"schedulingGroup": {"podGroupName": "of-another"}, "schedulerName": "a-profile"}
    job, profiled = a_gang("Kubernetes"), a_gang("Kubernetes", pod=theirs)
    for pod in (a_worker_pod(job), a_worker_pod(job, 3), a_stock_pod(job)):
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": "lm"}
        assert "schedulerName" not in pod["spec"]
        assert pod["metadata"]["annotations"] == plain["annotations"]
    assert a_worker_pod(profiled)["spec"]["schedulingGroup"] == {"podGroupName": "lm"}
    assert a_worker_pod(profiled)["spec"]["schedulerName"] == "a-profile"
    assert "schedulingGroup" not in store_pod(profiled, "x7k2p", 1)["spec"]


def test_scheduler_of_the_template_stays() -> None:
    pod = a_worker_pod(a_gang("Coscheduling", pod={"schedulerName": "one-of-our-own"}))
    assert pod["spec"]["schedulerName"] == "one-of-our-own"


def test_quantities_end_where_kubernetes_end() -> None:
    job = a_gang("Coscheduling", pod={"overhead": {"memory": "9" * 306}})
    assert job.scheduling.gang is not None
    assert pod_group(job, job.scheduling.gang)["spec"]["minResources"]["memory"] == str(2**63)
