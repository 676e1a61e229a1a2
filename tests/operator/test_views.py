"""From the API server's objects to views."""

from typing import Any

import pytest
from elastic_pytorch_operator.job import JobKey
from elastic_pytorch_operator.manifests import worker_pod
from elastic_pytorch_operator.views import job_of_pod, view_node, view_pod
from operator_builders import a_job


def a_pod_object(status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    pod = worker_pod(a_job(), 2, "x7k2p", "http://operator:8780")
    pod["metadata"] |= {"uid": "uid-1", **metadata}
    return {**pod, "status": status or {}}


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "pytorch", "image": "torch:nope", "state": state}]}


def test_worker_pod_names_its_job() -> None:
    assert job_of_pod(a_pod_object()) == (JobKey("default", "lm"), "uid-lm")


@pytest.mark.parametrize("strip", ["labels", "ownerReferences"])
def test_pod_of_somebody_else_is_nobodys_worker(strip: str) -> None:
    pod = a_pod_object()
    del pod["metadata"][strip]
    assert job_of_pod(pod) is None


def test_running_pod() -> None:
    view = view_pod(a_pod_object({"phase": "Running", "podIP": "10.0.0.7", **container(running={})}), seen_at=5.0)
    assert (view.index, view.started, view.address, view.ended, view.created_at) == (2, True, "10.0.0.7", False, 5.0)


def test_ended_pod() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled"}
    view = view_pod(a_pod_object({"phase": "Failed", **container(terminated=ended)}), seen_at=5.0, at_start=True)
    assert (view.ended, view.exit_code, view.exit_reason, view.seen_dead_at_start) == (True, 137, "OOMKilled", True)


def test_pod_whose_init_container_has_failed_says_which_and_why() -> None:
    ended = {"exitCode": 1, "reason": "Error", "message": "cannot copy the agent: no space left"}
    init = {"initContainerStatuses": [{"name": "elastic-pytorch-agent", "state": {"terminated": ended}}]}
    status = {"phase": "Failed", **init, **container(waiting={"reason": "PodInitializing"})}
    view = view_pod(a_pod_object(status), seen_at=5.0)
    assert (view.ended, view.exit_code) == (True, 1)
    assert view.exit_message == "init container elastic-pytorch-agent: cannot copy the agent: no space left"
    done = {"initContainerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}
    assert view_pod(a_pod_object({"phase": "Pending", **done}), seen_at=5.0).exit_code is None


def test_evicted_pod() -> None:
    view = view_pod(a_pod_object({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}), seen_at=5.0)
    assert (view.ended, view.exit_reason, view.exit_message) == (True, "Evicted", "low on memory")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (container(waiting={"reason": "ContainerCreating"}), ""),
        (
            container(waiting={"reason": "ErrImagePull", "message": "not found"}),
            "ErrImagePull of image torch:nope: not found",
        ),
        (
            container(waiting={"reason": "CreateContainerConfigError", "message": "no secret"}),
            "CreateContainerConfigError: no secret",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]},
            "Unschedulable: 0/3 nodes",
        ),
    ],
)
def test_why_a_pod_waits(status: dict[str, Any], expected: str) -> None:
    assert view_pod(a_pod_object({"phase": "Pending", **status}), seen_at=0.0).waiting == expected


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_node(status: str, ready: bool) -> None:
    node = {
        "metadata": {"name": "n"},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": status}]},
    }
    assert (view_node(node).ready, view_node(node).unschedulable) == (ready, True)


@pytest.mark.parametrize(
    ("status", "disrupted"),
    [
        ({"reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown."}, True),
        ({"reason": "Evicted"}, True),
        ({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}]}, True),
        ({"conditions": [{"type": "DisruptionTarget", "status": "False"}]}, False),
        ({}, False),
    ],
)
def test_pod_that_the_cluster_has_ended_is_disrupted(status: dict[str, Any], disrupted: bool) -> None:
    ended = {
        "phase": "Failed",
        "containerStatuses": [{"name": "pytorch", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}],
    }
    manifest = {
        "metadata": {"name": "w0", "namespace": "default", "uid": "1"},
        "spec": {"containers": [{"name": "pytorch"}]},
        "status": {**ended, **status},
    }
    view = view_pod(manifest, seen_at=1.0)
    assert (view.disrupted, view.exit_code) == (disrupted, 1)
    assert view.exit_reason == status.get("reason", "Error")
