from typing import Any

import pytest
from elastic_pytorch_operator.informer.pod_views import job_of_pod, view_node, view_pod
from elastic_pytorch_operator.model.announced_ends import MARKS, Certainty, parse_marks
from elastic_pytorch_operator.model.reduced_objects import reduce_pod
from elastic_pytorch_operator.spec.job import JobKey

from tests.operator.builders import a_job, a_worker_pod
from tests.situations import situations


def a_pod_object(status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    pod = a_worker_pod(a_job(), 2)
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


def test_running_pod() -> None:
    view = view_pod(
        a_pod_object({"phase": "Running", "podIP": "10.0.0.7", **container(running={})}),
        seen_at=5.0,
    )
    assert (view.index, view.started, view.address, view.ended, view.created_at) == (
        2,
        True,
        "10.0.0.7",
        False,
        5.0,
    )


def test_ended_pod() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled"}
    view = view_pod(
        a_pod_object({"phase": "Failed", **container(terminated=ended)}), seen_at=5.0, at_start=True
    )
    assert (view.ended, view.exit_code, view.exit_reason, view.ended_before_takeover) == (
        True,
        137,
        "OOMKilled",
        True,
    )


def test_pod_whose_init_container_has_failed_says_which_and_why() -> None:
    ended = {"exitCode": 1, "reason": "Error", "message": "cannot copy the agent: no space left"}
    init = {
        "initContainerStatuses": [{"name": "elastic-pytorch-agent", "state": {"terminated": ended}}]
    }
    status = {"phase": "Failed", **init, **container(waiting={"reason": "PodInitializing"})}
    view = view_pod(a_pod_object(status), seen_at=5.0)
    assert (view.ended, view.exit_code) == (True, 1)
    assert (
        view.exit_message
        == "init container elastic-pytorch-agent: cannot copy the agent: no space left"
    )
    done = {
        "initContainerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
        ]
    }
    assert view_pod(a_pod_object({"phase": "Pending", **done}), seen_at=5.0).exit_code is None


def test_evicted_pod() -> None:
    view = view_pod(
        a_pod_object({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
        seen_at=5.0,
    )
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
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes",
                    }
                ]
            },
            "Unschedulable: 0/3 nodes",
        ),
    ],
)
def test_why_a_pod_waits(status: dict[str, Any], expected: str) -> None:
    assert view_pod(a_pod_object({"phase": "Pending", **status}), seen_at=0.0).waiting == expected


TERMINATED = {"terminated": {"exitCode": 1, "reason": "Error"}}


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


@pytest.mark.parametrize(
    ("status", "ended", "lingers"),
    [
        (states(pytorch={"running": {}}, proxy={"running": {}}), False, False),
        (states(pytorch={"running": {}}, proxy=TERMINATED), False, False),
        (states(pytorch=TERMINATED, proxy={"running": {}}), True, True),
        (
            states(
                "Pending", pytorch=TERMINATED, proxy={"waiting": {"reason": "ImagePullBackOff"}}
            ),
            True,
            True,
        ),
        (states(pytorch=TERMINATED, proxy=TERMINATED), True, False),
        (states(pytorch=TERMINATED), True, False),
        (states(init={"proxy": {"running": {}}}, pytorch=TERMINATED), True, False),
        (states("Failed", pytorch=TERMINATED, proxy={"running": {}}), True, False),
    ],
)
def test_training_that_is_over_and_pod_that_is_not(
    status: dict[str, Any], ended: bool, lingers: bool
) -> None:
    view = view_pod(a_pod_object(status), seen_at=5.0)
    assert (view.ended, view.lingers) == (ended, lingers)


def a_pod_with_an_injected_sidecar(status: dict[str, Any], *, told: bool = True) -> dict[str, Any]:
    """A pod whose one container, `trainer`, a webhook has put another in front of."""
    template = {
        "spec": {"containers": [{"name": "trainer", "image": "torch", "args": ["train.py"]}]}
    }
    pod = a_worker_pod(a_job(template=template), 2)
    pod["metadata"] |= {"uid": "uid-1", **({} if told else {"annotations": {}})}
    pod["spec"]["containers"].insert(0, {"name": "istio-proxy", "image": "proxy"})
    return {**pod, "status": status}


@pytest.mark.parametrize(
    ("state", "started", "exit_code"),
    [
        ({"running": {}}, True, None),
        (TERMINATED, False, 1),
        ({"terminated": {"exitCode": 0}}, False, 0),
    ],
)
def test_training_container_beside_an_injected_one(
    state: dict[str, Any], started: bool, exit_code: int | None
) -> None:
    status = states(**{"istio-proxy": {"running": {}}, "trainer": state})
    view = view_pod(a_pod_with_an_injected_sidecar(status), seen_at=5.0)
    assert (view.started, view.exit_code, view.lingers) == (
        started,
        exit_code,
        exit_code is not None,
    )


def with_native_sidecar(status: dict[str, Any]) -> dict[str, Any]:
    pod = a_pod_object(status)
    pod["spec"]["initContainers"] = [
        {"name": "proxy", "restartPolicy": "Always"},
        {"name": "setup"},
    ]
    return pod


def test_native_sidecar_that_was_stopped_with_its_pod_has_not_failed_it() -> None:
    stopped = {"terminated": {"exitCode": 143, "reason": "Error"}}
    failed = {"terminated": {"exitCode": 1, "reason": "Error", "message": "no data"}}
    waits = {"waiting": {"reason": "PodInitializing"}}
    view = view_pod(
        with_native_sidecar(states("Failed", {"proxy": stopped, "setup": failed}, pytorch=waits)),
        seen_at=5.0,
    )
    assert (view.exit_code, view.exit_message) == (1, "init container setup: no data")
    evicted = {
        **states("Failed", {"proxy": stopped}),
        "reason": "Evicted",
        "message": "low on memory",
    }
    view = view_pod(with_native_sidecar(evicted), seen_at=5.0)
    assert (view.exit_code, view.exit_reason, view.exit_message) == (
        None,
        "Evicted",
        "low on memory",
    )


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
        (states(init={"proxy": BACK_OFF}, pytorch={"running": {}}), ""),
        (states("Pending", sidecar=NO_IMAGE, pytorch=CREATING), ""),
        (states(sidecar=NO_IMAGE, pytorch={"running": {}}), ""),
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
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": "0/3 nodes",
    }
    assert (
        view_pod(a_pod_object({"conditions": [condition]}), seen_at=5.0).unschedulable
        is unschedulable
    )
    assert not view_pod(
        a_pod_object({"conditions": [{**condition, "status": "True"}]}), seen_at=5.0
    ).unschedulable
    nominated = {"conditions": [condition], "nominatedNodeName": "node-1"}
    assert not view_pod(a_pod_object(nominated), seen_at=5.0).unschedulable, (
        "others are being preempted for it"
    )


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
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
                ]
            },
            True,
        ),
        ({"conditions": [{"type": "DisruptionTarget", "status": "False"}]}, False),
        ({}, False),
    ],
)
def test_pod_that_the_cluster_has_ended_is_disrupted(
    status: dict[str, Any], disrupted: bool
) -> None:
    ended = container(terminated={"exitCode": 1, "reason": "Error"})
    view = view_pod(a_pod_object({"phase": "Failed", **ended, **status}), seen_at=1.0)
    assert (view.disrupted, view.exit_code) == (disrupted, 1)
    assert view.exit_reason == status.get("reason", "Error")


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
    view = view_node(node)
    assert (view.labels, view.allocatable) == ({"pool": "a"}, allocatable)
    assert view.taints == (("gpu", "", "NoSchedule"), ("spot", "yes", "NoExecute"))


@pytest.mark.parametrize(
    ("node", "by"),
    [
        ({"spec": {}}, ""),
        ({"spec": {"unschedulable": True}}, "spec.unschedulable"),
        (
            {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}},
            "taint karpenter.sh/disrupted",
        ),
        (
            {
                "spec": {
                    "taints": [
                        {
                            "key": "DeletionCandidateOfClusterAutoscaler",
                            "effect": "PreferNoSchedule",
                        }
                    ]
                }
            },
            "taint DeletionCandidateOfClusterAutoscaler",
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
    view = view_node(
        {"metadata": {"name": "n"}, **node},
        (*MARKS, *parse_marks(["acme.io/going"], Certainty.SOFT)),
    )
    assert (view.end.by if view.end else "") == by


def test_heartbeat_of_a_node_is_no_news() -> None:
    def beat(time: str, version: str) -> dict[str, Any]:
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": time}
        return {
            "metadata": {"name": "n", "resourceVersion": version},
            "status": {"conditions": [ready], "images": [version]},
        }

    assert view_node(beat("2026-01-01T00:00:00Z", "1")) == view_node(
        beat("2026-01-01T00:05:00Z", "2")
    )


def test_pod_carries_its_conditions_and_how_often_its_group_had_been_restarted() -> None:
    disrupted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "drained",
    }
    pod = a_pod_object({"conditions": [disrupted, {"type": "Ready", "status": "False"}]})
    view = view_pod(pod, seen_at=5.0)
    assert (view.conditions, view.group_restarts) == (
        {("DisruptionTarget", "True"), ("Ready", "False")},
        0,
    )
    later = a_worker_pod(a_job(), 2, group_restarts=7)
    later["metadata"]["uid"] = "uid-2"
    assert view_pod(later, seen_at=5.0).group_restarts == 7


@situations(
    "reason, said",
    {
        "the kubelet ended it": ("Evicted", "Usage of EmptyDir volume exceeds the limit"),
        "it ended itself": ("", "last line of the log"),
    },
)
def test_message_of_an_end_is_of_whoever_ended_the_pod(reason: str, said: str) -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "Error", "message": "last line of the log"}}
    status = {
        "phase": "Failed",
        "reason": reason,
        "message": "Usage of EmptyDir volume exceeds the limit",
    }
    view = view_pod(
        a_pod_object({**status, "containerStatuses": [{"name": "pytorch", "state": ended}]}),
        seen_at=5.0,
    )
    assert (view.exit_reason, view.exit_message, view.exit_code) == (reason or "Error", said, 137)
