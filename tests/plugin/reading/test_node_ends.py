from datetime import UTC, datetime
from typing import Any

import pytest
from elastic_pytorch_client.reading.node_ends import MARKS, NodeEnd, find_end
from elastic_pytorch_operator.informer.pod_views import view_node
from elastic_pytorch_operator.model.announced_ends import MARKS as OPERATORS
from elastic_pytorch_operator.model.announced_ends import Certainty

SPOT = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
CANDIDATE = {
    "key": "DeletionCandidateOfClusterAutoscaler",
    "effect": "PreferNoSchedule",
    "value": "17",
}


def a_node(
    *taints: dict[str, str], labels: object = None, conditions: object = (), **metadata: Any
) -> dict[str, Any]:
    about = {"name": "n", "labels": labels, **metadata}
    return {
        "metadata": about,
        "spec": {"taints": list(taints)},
        "status": {"conditions": conditions},
    }


def test_the_marks_are_those_of_the_operator() -> None:
    theirs = {
        (on, mark.key, mark.certainty is Certainty.SURE, mark.fault, mark.value)
        for mark in OPERATORS
        for on in mark.on
    }
    assert set(MARKS) == theirs


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (a_node(), None),
        (a_node({"key": "dedicated", "effect": "NoSchedule"}), None),
        (
            a_node(SPOT),
            NodeEnd("announces its end by taint aws-node-termination-handler/spot-itn", sure=True),
        ),
        (
            a_node(CANDIDATE, SPOT),
            NodeEnd("announces its end by taint aws-node-termination-handler/spot-itn", sure=True),
        ),
        (
            a_node(CANDIDATE),
            NodeEnd("announces its end by taint DeletionCandidateOfClusterAutoscaler", sure=False),
        ),
        (
            a_node({"key": "karpenter.sh/disruption", "value": "other", "effect": "NoSchedule"}),
            None,
        ),
        (
            a_node(conditions=[{"type": "GpuMemWatch", "status": "True"}]),
            NodeEnd("reports a fault by condition GpuMemWatch=True", sure=True, fault=True),
        ),
        (a_node(conditions=[{"type": "GpuMemWatch", "status": "False"}]), None),
        (
            a_node(conditions=[{"type": "KernelReady", "status": "False"}]),
            NodeEnd("reports a fault by condition KernelReady=False", sure=False, fault=True),
        ),
        (
            a_node(deletionTimestamp="2026-11-21T18:00:00Z"),
            NodeEnd("announces its end by the deletion of the Node object", sure=True),
        ),
        (
            a_node(labels={"cloud.google.com/scheduled-maintenance-time": "1700000000"}),
            NodeEnd(
                "announces its end by label cloud.google.com/scheduled-maintenance-time=1700000000",
                sure=True,
                at=datetime.fromtimestamp(1_700_000_000, UTC),
            ),
        ),
        (a_node(labels={"cloud.google.com/scheduled-maintenance-time": "9" * 400}), None),
        (a_node(labels={"cloud.google.com/scheduled-maintenance-time": "soon"}), None),
    ],
)
def test_ends(node: dict[str, Any], expected: NodeEnd | None) -> None:
    assert find_end(node) == expected
    theirs = view_node(node).end
    assert (None if theirs is None else str(theirs)) == (
        None if expected is None else expected.what
    )


def test_a_node_that_has_nothing() -> None:
    assert find_end({"metadata": {"name": "n"}}) is None
