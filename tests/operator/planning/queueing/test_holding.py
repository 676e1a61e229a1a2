from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.planning.queueing.holding import holding_pods

from tests.operator.builders import a_dead_pod, a_pending_pod, a_pod, observed


def test_pods_hold_quota_until_they_have_ended_or_are_gone() -> None:
    pods = [
        a_pod(0),
        a_pending_pod(1),
        a_pod(2, deleting=True),
        a_dead_pod(3),
        a_pod(4, exit_code=0, sidecar_runs=True),
        a_pod(5, deleting=True, node="lost"),
        a_pod(6, node="lost"),
    ]
    there = observed(pods, nodes={"node-0": NodeView("node-0"), "lost": NodeView("lost", ready=False)})
    assert [pod.index for pod in holding_pods(there)] == [0, 1, 2, 4, 6]
