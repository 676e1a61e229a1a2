from typing import Any

import pytest
from elastic_pytorch_operator.informer.pod_views import job_of_pod, view_node, view_pod
from elastic_pytorch_operator.model.announced_ends import MARKS, Certainty, parse_marks
from elastic_pytorch_operator.model.observed import PodView
from elastic_pytorch_operator.model.reduced_objects import reduce_pod
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import a_job, a_worker_pod
from tests.situations import situations


def a_pod_object(status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    pod = a_worker_pod(a_job(), 2)
    pod["metadata"] |= {"uid": "uid-1", **metadata}
    return {**pod, "status": status or {}}


def view(status: dict[str, Any], **metadata: Any) -> PodView:
    return view_pod(a_pod_object(status, **metadata), seen_at=5.0)


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "pytorch", "image": "torch:nope", "state": state}]}


def test_worker_pod_names_its_job() -> None:
    assert job_of_pod(a_pod_object()) == (JobKey("default", "lm"), "uid-lm")


@pytest.mark.parametrize("strip", ["labels", "ownerReferences"])
def test_pod_of_somebody_else_is_nobodys_worker(strip: str) -> None:
    pod = a_pod_object()
    del pod["metadata"][strip]
    assert job_of_pod(pod) is None


def a_pod_with_sidecar(ended: dict[str, Any]) -> dict[str, Any]:
    """Without the annotation of its training container; an init container has failed."""
    init = {"initContainerStatuses": [{"name": "proxy", "state": {"terminated": ended}}]}
    pod = a_pod_object(
        {"phase": "Failed", "podIP": "10.0.0.7", **init, **container(running={})}, annotations={}
    )
    pod["spec"]["initContainers"] = [{"name": "proxy", "image": "proxy", "restartPolicy": "Always"}]
    pod["spec"] |= {"nodeName": "node-1", "terminationGracePeriodSeconds": 90}
    return pod


def test_views_read_nothing_that_is_taken_from_listed_pods() -> None:
    pods = [
        a_pod_object(
            {"phase": "Running", "podIP": "10.0.0.7", **container(running={})},
            managedFields=[{"manager": "a"}],
        ),
        a_pod_with_sidecar({"exitCode": 1}),
        {**a_pod_with_sidecar({"exitCode": 1}), "spec": {"containers": [{"name": "other"}]}},
        {**a_pod_object(), "spec": {}},
    ]
    for pod in pods:
        reduced = reduce_pod(pod)
        assert view_pod(reduced, seen_at=5.0) == view_pod(pod, seen_at=5.0)
        assert job_of_pod(reduced) == job_of_pod(pod)
        assert "managedFields" not in reduced["metadata"]
        assert len(str(reduced["spec"])) < 250


@pytest.mark.parametrize(
    ("health", "unhealthy"),
    [("Healthy", ""), ("Unknown", ""), (None, ""), ("Unhealthy", "claim:gpus/gpu, nvidia.com/gpu")],
)
def test_unhealthy_devices_of_a_pod(health: str | None, unhealthy: str) -> None:
    well = {"resourceID": "GPU-1", "health": "Healthy"}
    reported = [
        {"name": "nvidia.com/gpu", "resources": [well, {"resourceID": "GPU-2", "health": health}]},
        {
            "name": "claim:gpus/gpu",
            "resources": [{"resourceID": "driver/pool/gpu-3", "health": health}],
        },
        {"name": "nvidia.com/nic"},
    ]
    status = container(running={})
    status["containerStatuses"][0]["allocatedResourcesStatus"] = reported
    pod = a_pod_object({"phase": "Running", **status})
    assert (
        view_pod(pod, seen_at=5.0).unhealthy
        == view_pod(reduce_pod(pod), seen_at=5.0).unhealthy
        == unhealthy
    )


def ended(exit_code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": exit_code, "reason": reason, "message": message}}


def states(
    phase: str = "Running", init: dict[str, Any] | None = None, **containers: Any
) -> dict[str, Any]:
    return {
        "phase": phase,
        "initContainerStatuses": [
            {"name": name, "state": state} for name, state in (init or {}).items()
        ],
        "containerStatuses": [{"name": name, "state": state} for name, state in containers.items()],
    }


RUNNING: dict[str, Any] = {"running": {}}
TERMINATED = ended(1)
EVICTED = {"reason": "Evicted", "message": "low on memory"}
INITIALIZING = {"waiting": {"reason": "PodInitializing"}}
KILLED = states("Failed", pytorch=ended(137, message="last line"))
COPY_FAILED = "cannot copy the agent: no space left"


@situations(
    "status, expected",
    {
        "runs": (
            {**states(pytorch=RUNNING), "podIP": "10.0.0.7"},
            {"index": 2, "started": True, "address": "10.0.0.7", "ended": False, "created_at": 5.0},
        ),
        "has ended": (
            states("Failed", pytorch=ended(137, "OOMKilled")),
            {"ended": True, "exit_code": 137, "exit_reason": "OOMKilled"},
        ),
        "is evicted": (
            {"phase": "Failed", **EVICTED},
            {"ended": True, "exit_reason": "Evicted", "exit_message": "low on memory"},
        ),
        "an init container has failed": (
            states(
                "Failed",
                {"elastic-pytorch-agent": ended(1, message=COPY_FAILED)},
                pytorch=INITIALIZING,
            ),
            {
                "ended": True,
                "exit_code": 1,
                "exit_message": f"init container elastic-pytorch-agent: {COPY_FAILED}",
            },
        ),
        "an init container has done its work": (
            states("Pending", {"a": ended(0, "Completed")}),
            {"exit_code": None},
        ),
        "the kubelet has ended it": (
            {**KILLED, **EVICTED},
            {"exit_reason": "Evicted", "exit_message": "low on memory", "exit_code": 137},
        ),
        "it has ended itself": (
            {**KILLED, "message": "low on memory"},
            {"exit_reason": "Error", "exit_message": "last line", "exit_code": 137},
        ),
    },
)
def test_view_of_a_pod(status: dict[str, Any], expected: dict[str, Any]) -> None:
    found = view(status)
    assert {name: getattr(found, name) for name in expected} == expected


NO_NODE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes",
}


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
        ({"conditions": [NO_NODE]}, "Unschedulable: 0/3 nodes"),
    ],
)
def test_why_a_pod_waits(status: dict[str, Any], expected: str) -> None:
    assert view({"phase": "Pending", **status}).waiting == expected


@pytest.mark.parametrize(
    ("status", "ended", "lingers"),
    [
        (states(pytorch=RUNNING, proxy=RUNNING), False, False),
        (states(pytorch=RUNNING, proxy=TERMINATED), False, False),
        (states(pytorch=TERMINATED, proxy=RUNNING), True, True),
        (states("Pending", pytorch=TERMINATED, proxy=INITIALIZING), True, True),
        (states(pytorch=TERMINATED, proxy=TERMINATED), True, False),
        (states(pytorch=TERMINATED), True, False),
        (states(init={"proxy": RUNNING}, pytorch=TERMINATED), True, False),
        (states("Failed", pytorch=TERMINATED, proxy=RUNNING), True, False),
    ],
)
def test_training_that_is_over_and_pod_that_is_not(
    status: dict[str, Any], ended: bool, lingers: bool
) -> None:
    found = view(status)
    assert (found.ended, found.lingers) == (ended, lingers)


def a_pod_with_an_injected_sidecar(status: dict[str, Any]) -> dict[str, Any]:
    """A pod whose one container, `trainer`, a webhook has put another in front of."""
    trainer = {"name": "trainer", "image": "torch", "args": ["train.py"]}
    template = {"spec": {"containers": [trainer]}}
    pod = a_worker_pod(a_job(template=template), 2)
    pod["metadata"] |= {"uid": "uid-1"}
    pod["spec"]["containers"].insert(0, {"name": "istio-proxy", "image": "proxy"})
    return {**pod, "status": status}


@pytest.mark.parametrize(
    ("state", "started", "exit_code"),
    [(RUNNING, True, None), (TERMINATED, False, 1)],
)
def test_training_container_beside_an_injected_one(
    state: dict[str, Any], started: bool, exit_code: int | None
) -> None:
    status = states(**{"istio-proxy": RUNNING, "trainer": state})
    found = view_pod(a_pod_with_an_injected_sidecar(status), seen_at=5.0)
    lingers = exit_code is not None
    assert (found.started, found.exit_code, found.lingers) == (started, exit_code, lingers)


def with_native_sidecar(status: dict[str, Any]) -> dict[str, Any]:
    pod = a_pod_object(status)
    pod["spec"]["initContainers"] = [
        {"name": "proxy", "restartPolicy": "Always"},
        {"name": "setup"},
    ]
    return pod


def test_native_sidecar_that_was_stopped_with_its_pod_has_not_failed_it() -> None:
    proxy, setup = ended(143), ended(1, message="no data")
    failed = states("Failed", {"proxy": proxy, "setup": setup}, pytorch=INITIALIZING)
    found = view_pod(with_native_sidecar(failed), seen_at=5.0)
    assert (found.exit_code, found.exit_message) == (1, "init container setup: no data")
    evicted = {**states("Failed", {"proxy": proxy}), **EVICTED}
    found = view_pod(with_native_sidecar(evicted), seen_at=5.0)
    assert (found.exit_code, found.exit_reason) == (None, "Evicted")


BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
NO_IMAGE = {"waiting": {"reason": "InvalidImageName"}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}


@pytest.mark.parametrize(
    ("status", "waiting"),
    [
        (
            states("Pending", {"proxy": BACK_OFF}, pytorch=CREATING),
            "CrashLoopBackOff: back-off 10s",
        ),
        (states(init={"proxy": BACK_OFF}, pytorch=RUNNING), ""),
        (states("Pending", sidecar=NO_IMAGE, pytorch=CREATING), ""),
        (states(sidecar=NO_IMAGE, pytorch=RUNNING), ""),
        (states("Pending", sidecar=CREATING, pytorch=NO_IMAGE), "InvalidImageName"),
    ],
)
def test_training_waits_for_init_containers_and_not_for_other_containers(
    status: dict[str, Any], waiting: str
) -> None:
    assert view_pod(with_native_sidecar(status), seen_at=5.0).waiting == waiting


@pytest.mark.parametrize(
    ("reason", "unschedulable"), [("Unschedulable", True), ("SchedulingGated", False)]
)
def test_pod_for_which_the_scheduler_has_found_no_node(reason: str, unschedulable: bool) -> None:
    condition = {**NO_NODE, "reason": reason}
    assert view({"conditions": [condition]}).unschedulable is unschedulable
    assert not view({"conditions": [{**condition, "status": "True"}]}).unschedulable
    nominated = {"conditions": [condition], "nominatedNodeName": "node-1"}
    assert not view(nominated).unschedulable, "others are being preempted for it"


@pytest.mark.parametrize(
    ("status", "ready"), [("True", True), ("False", False), ("Unknown", False)]
)
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
        ({"reason": "Evicted"}, False),  # by its own disk
        ({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, True),
        ({"conditions": [{"type": "DisruptionTarget", "status": "False"}]}, False),
        ({}, False),
    ],
)
def test_pod_that_the_cluster_has_ended_is_disrupted(
    status: dict[str, Any], disrupted: bool
) -> None:
    found = view({**states("Failed", pytorch=TERMINATED), **status})
    assert (found.disrupted, found.exit_code) == (disrupted, 1)


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 30),
        ({"terminationGracePeriodSeconds": 600}, 600),
        ({"terminationGracePeriodSeconds": 0}, 0),
    ],
)
def test_pod_has_its_grace_period(spec: dict[str, Any], seconds: int) -> None:
    pod = a_pod_object()
    pod["spec"] = {**pod["spec"], **spec}
    assert view_pod(pod, seen_at=1.0).grace_seconds == seconds


def test_node_tells_what_pods_it_takes() -> None:
    taints = [
        {"key": "gpu", "effect": "NoSchedule"},
        {"key": "spot", "value": "yes", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": "full", "effect": "PreferNoSchedule"},
    ]
    allocatable = {"cpu": "8", "nvidia.com/gpu": "8"}
    node = {
        "metadata": {"name": "n", "labels": {"pool": "a"}},
        "spec": {"taints": taints},
        "status": {"allocatable": allocatable},
    }
    found = view_node(node)
    assert (found.labels, found.allocatable) == ({"pool": "a"}, allocatable)
    assert found.taints == (("gpu", "", "NoSchedule"), ("spot", "yes", "NoExecute"))


CANDIDATE = "DeletionCandidateOfClusterAutoscaler"


@pytest.mark.parametrize(
    ("node", "by"),
    [
        ({"spec": {"unschedulable": True}}, "spec.unschedulable"),
        (
            {"spec": {"taints": [{"key": CANDIDATE, "effect": "PreferNoSchedule"}]}},
            f"taint {CANDIDATE}",
        ),
        (
            {"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
            "the deletion of the Node object",
        ),
        (
            {"metadata": {"name": "n", "labels": {"acme.io/going": "yes"}}},
            "label acme.io/going=yes",
        ),
    ],
)
def test_node_tells_what_announces_its_end(node: dict[str, Any], by: str) -> None:
    marks = (*MARKS, *parse_marks(["acme.io/going"], Certainty.SOFT))
    end = view_node({"metadata": {"name": "n"}, **node}, marks).end
    assert (end.by if end else "") == by


def test_pod_carries_its_conditions_and_how_often_its_group_had_been_restarted() -> None:
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    found = view({"conditions": [disrupted, {"type": "Ready", "status": "False"}]})
    assert found.conditions == {("DisruptionTarget", "True"), ("Ready", "False")}
    assert found.group_restarts == 0
    later = a_worker_pod(a_job(), 2, group_restarts=7)
    later["metadata"]["uid"] = "uid-2"
    assert view_pod(later, seen_at=5.0).group_restarts == 7
