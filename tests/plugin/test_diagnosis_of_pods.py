"""Why the pods of a job do not start, and what to do."""

from dataclasses import replace

import pytest

from tests.plugin.recorded_cluster import recorded
from tests.plugin.test_diagnosis import evidence_of, said, why


def test_nodes_that_may_not_be_looked_at_are_left_out() -> None:
    diagnosis = why("too-large", nodes=None)
    assert "3 Insufficient cpu." in said(diagnosis)
    assert "largest node" not in said(diagnosis)


@pytest.mark.parametrize(
    "message",
    [
        "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: "
        "0/4 nodes are available: 4 Preemption "
        "is not helpful for scheduling.",
        "0/4 nodes are available: 1 node(s) had untolerated taint {control-plane: }, 3 node(s) "
        "didn't find available persistent volumes "
        "to bind.",
        '0/4 nodes are available: persistentvolumeclaim "checkpoints-too-large" not found.',
        'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded',
        '0/4 nodes are available: persistentvolumeclaim "checkpoints-too-large" is being deleted.',
    ],
)
def test_pods_that_wait_for_a_claim_are_told_apart_from_those_that_need_room(message: str) -> None:
    pods = recorded("too-large")["pods"]
    claims = [
        {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-too-large"}}
        for name in ("checkpoints", "data")
    ]
    for pod in pods:
        if not pod["spec"].get("nodeName"):
            pod["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}, *claims]
            pod["status"]["conditions"] = [
                {"type": "PodScheduled", "status": "False", "message": message}
            ]
    shown = said(why("too-large", pods=pods))
    assert "2 pods (too-large-worker-" in shown
    assert "is one): waiting for a volume claim: " in shown
    assert (
        "kubectl describe persistentvolumeclaim -n team checkpoints-too-large data-too-large"
        in shown
    )
    assert "node, " not in shown


def test_room_does_not_help_a_pod_that_is_gated() -> None:
    pods = recorded("too-large")["pods"]
    for pod in pods:
        pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    shown = said(why("too-large", pods=pods))
    assert (
        "held back by the scheduling gate kueue.x-k8s.io/admission, "
        "as Kueue queues this pod by itself" in shown
    )
    assert "To queue the job as a whole" in shown
    assert "kubectl get workloads.kueue.x-k8s.io -n team" in shown
    assert "Free resources" not in shown
    assert "larger nodes" not in shown


def test_a_node_that_is_not_ready() -> None:
    nodes = [
        replace(node, ready=node.name != "elastic-pytorch-worker2")
        for node in evidence_of("lost").nodes or ()
    ]
    shown = said(why("lost", nodes=nodes))
    assert "elastic-pytorch-worker2 is not ready" in shown
    assert "kubectl describe node elastic-pytorch-worker2" in shown


def test_a_container_that_crashes_before_it_trains() -> None:
    found = recorded("no-image")["pods"]
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s"}
    found[0]["status"]["containerStatuses"] = [{"name": "agent", "state": {"waiting": waiting}}]
    shown = said(why("no-image", pods=found))
    assert "container agent cannot start, CrashLoopBackOff: back-off 10s" in shown
    assert "kubectl logs -n team" in shown


@pytest.mark.parametrize(
    ("message", "command"),
    [
        (
            'configmap "settings" not found',
            "kubectl create configmap settings --from-file=PATH -n team",
        ),
        (
            'secret "token" not found',
            "kubectl create secret generic token --from-file=PATH -n team",
        ),
        (
            "couldn't find key lr in ConfigMap team/settings",
            "Create the object that the container refers to",
        ),
    ],
)
def test_a_config_map_or_secret_that_is_missing(message: str, command: str) -> None:
    found = recorded("no-image")["pods"]
    waiting = {"reason": "CreateContainerConfigError", "message": message}
    for pod in found:
        pod["status"]["containerStatuses"] = [{"name": "pytorch", "state": {"waiting": waiting}}]
    shown = said(why("no-image", pods=found))
    assert f"container pytorch cannot start, CreateContainerConfigError: {message}" in shown
    assert command in shown
