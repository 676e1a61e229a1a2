"""What the taints and labels of a node announce."""

from typing import Any

import pytest
from elastic_pytorch_operator.model.announced_ends import (
    MARKS,
    NOTICE_SECONDS,
    AnnouncedEnd,
    Certainty,
    Taint,
    announced_end,
    parse_marks,
)

SURE, DATED, SOFT = Certainty.SURE, Certainty.DATED, Certainty.SOFT


def tainted(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, Any]:
    return {"taints": [Taint(key, value, effect)], "labels": {}}


def labelled(key: str, value: str) -> dict[str, Any]:
    return {"taints": [], "labels": {key: value}}


@pytest.mark.parametrize(
    ("node", "certainty", "notice_seconds"),
    [
        (tainted("aws-node-termination-handler/spot-itn", "event-1"), SURE, 120),
        (tainted("aws-node-termination-handler/asg-lifecycle-termination"), SURE, 120),
        (tainted("aws-node-termination-handler/scheduled-maintenance"), SURE, 120),
        (tainted("aws-node-termination-handler/rebalance-recommendation"), SOFT, 120),
        (tainted("karpenter.sh/disrupted"), SURE, 120),
        (tainted("karpenter.sh/disruption", "disrupting"), SURE, 120),
        (tainted("ToBeDeletedByClusterAutoscaler", "1700000000"), SURE, 120),
        (tainted("DeletionCandidateOfClusterAutoscaler", "1700000000", "PreferNoSchedule"), SOFT, 120),
        (tainted("cloud.google.com/impending-node-termination"), SURE, 30),
        (labelled("cloud.google.com/active-node-maintenance", "ONGOING"), SURE, 120),
        (tainted("remediator.kubernetes.azure.com/unschedulable"), SURE, 120),
        (tainted("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute"), SURE, 0),
        (tainted("node.cloudprovider.kubernetes.io/shutdown"), SURE, 0),
        ({**tainted("gpu"), "deleting": True}, SURE, 120),
        ({**tainted("gpu"), "unschedulable": True}, SOFT, 120),
    ],
)
def test_end_of_a_node(node: dict[str, Any], certainty: Certainty, notice_seconds: float) -> None:
    end = announced_end(**node)
    assert end is not None
    assert (end.certainty, end.notice_seconds) == (certainty, notice_seconds)


@pytest.mark.parametrize(
    "node",
    [
        {"taints": [], "labels": {}},
        tainted("nvidia.com/gpu"),
        tainted("karpenter.sh/unregistered"),
        tainted("kubernetes.azure.com/scalesetpriority", "spot"),
        labelled("karpenter.sh/capacity-type", "spot"),
        labelled("cloud.google.com/active-node-maintenance", "NONE"),
        labelled("cloud.google.com/scheduled-maintenance-time", "soon"),
        labelled("cloud.google.com/scheduled-maintenance-time", "9" * 30),
        labelled("cloud.google.com/scheduled-maintenance-time", "\u00b2"),
        labelled("aws-node-termination-handler/spot-itn", "a taint's key, on a label"),
    ],
)
def test_what_describes_a_node_announces_nothing(node: dict[str, Any]) -> None:
    assert announced_end(**node) is None


def test_date_is_told_in_the_api_s_form() -> None:
    end = announced_end([], {"cloud.google.com/scheduled-maintenance-time": "1767225600"})
    by = "label cloud.google.com/scheduled-maintenance-time=1767225600"
    assert end == AnnouncedEnd(by, DATED, NOTICE_SECONDS, "2026-01-01T00:00:00Z")


def test_surest_and_soonest_announcement_counts() -> None:
    soft, sure, soon = (
        Taint(key, "", "NoSchedule")
        for key in (
            "DeletionCandidateOfClusterAutoscaler",
            "karpenter.sh/disrupted",
            "cloud.google.com/impending-node-termination",
        )
    )
    dated = {"cloud.google.com/scheduled-maintenance-time": "1767225600"}
    found = [announced_end(taints, dated, unschedulable=True) for taints in ([soft], [soft, sure], [soft, sure, soon])]
    assert [end.by if end else "" for end in found] == [
        "label cloud.google.com/scheduled-maintenance-time=1767225600",
        "taint karpenter.sh/disrupted",
        "taint cloud.google.com/impending-node-termination",
    ]


@pytest.mark.parametrize(
    ("text", "node", "announces"),
    [
        ("acme.io/going", tainted("acme.io/going", "x", "NoExecute"), True),
        ("acme.io/going", labelled("acme.io/going", "x"), True),
        ("acme.io/going=yes", labelled("acme.io/going", "yes"), True),
        ("acme.io/going=yes", labelled("acme.io/going", "no"), False),
        ("acme.io/going=yes", tainted("acme.io/going", "no"), False),
        ("acme.io/going:NoExecute", tainted("acme.io/going", "", "NoExecute"), True),
        ("acme.io/going:NoExecute", tainted("acme.io/going", "", "NoSchedule"), False),
        ("acme.io/going:NoExecute", labelled("acme.io/going", ""), False),
        ("acme.io/going=a:NoExecute", tainted("acme.io/going", "a", "NoExecute"), True),
    ],
)
def test_keys_of_the_cluster_s_own(text: str, node: dict[str, Any], *, announces: bool) -> None:
    for certainty in (SURE, SOFT):
        end = announced_end(**node, marks=(*MARKS, *parse_marks([text], certainty)))
        assert (end.certainty if end else None) == (certainty if announces else None)


@pytest.mark.parametrize("text", ["", "=yes", ":NoSchedule", "acme.io/going:Sometimes"])
def test_key_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not key\[=value\]\[:effect\]"):
        parse_marks([text], SURE)
