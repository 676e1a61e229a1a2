import math
from typing import Any

import pytest
from elastic_pytorch_operator.model.announced_ends import (
    FAULTS,
    MARKS,
    NOTICE_SECONDS,
    AnnouncedEnd,
    Certainty,
    Taint,
    announced_end,
    parse_marks,
)

from tests.faults import assert_none

SURE, DATED, SOFT = Certainty.SURE, Certainty.DATED, Certainty.SOFT


def tainted(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, Any]:
    return {"taints": [Taint(key, value, effect)], "labels": {}}


def labelled(key: str, value: str) -> dict[str, Any]:
    return {"taints": [], "labels": {key: value}}


@pytest.mark.parametrize(
    ("node", "certainty", "notice_seconds"),
    [
        (tainted("aws-node-termination-handler/spot-itn", "event-1"), SURE, 120),
        (tainted("aws-node-termination-handler/rebalance-recommendation"), SOFT, 120),
        (tainted("karpenter.sh/disruption", "disrupting"), SURE, 120),
        (tainted("ToBeDeletedByClusterAutoscaler", "1700000000"), SURE, 120),
        (tainted("cloud.google.com/impending-node-termination"), SURE, 30),
        (labelled("cloud.google.com/active-node-maintenance", "ONGOING"), SURE, 120),
        (tainted("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute"), SURE, 0),
        ({**tainted("gpu"), "deleting": True}, SURE, 120),
        ({**tainted("gpu"), "unschedulable": True}, SOFT, 120),
    ],
)
def test_end_of_a_node(node: dict[str, Any], certainty: Certainty, notice_seconds: float) -> None:
    end = announced_end(**node)
    assert end is not None
    assert (end.certainty, end.notice_seconds) == (certainty, notice_seconds)


def reporting(condition: str, status: str = "True") -> dict[str, Any]:
    return {"taints": [], "labels": {}, "conditions": {"Ready": "True", condition: status}}


@pytest.mark.parametrize(
    ("node", "by", "certainty"),
    [
        (tainted("nvidia.com/gpu-xid-error", "true"), "taint nvidia.com/gpu-xid-error", SURE),
        (tainted("nvidia.com/gpu-error", "fatal", "NoExecute"), "taint nvidia.com/gpu-error", SURE),
        (reporting("GpuMemWatch"), "condition GpuMemWatch=True", SURE),
        (reporting("DCGMError"), "condition DCGMError=True", SOFT),
        (
            reporting("AcceleratedHardwareReady", "False"),
            "condition AcceleratedHardwareReady=False",
            SURE,
        ),
        (reporting("StorageReady", "False"), "condition StorageReady=False", SOFT),
    ],
)
def test_fault_of_a_node(node: dict[str, Any], by: str, certainty: Certainty) -> None:
    assert announced_end(**node) == AnnouncedEnd(
        by, certainty, math.inf, taint=node["taints"][0] if node["taints"] else None, fault=True
    )


def test_no_fault_is_reported_by_a_node_that_is_well() -> None:
    well = {mark: "True" if mark.value == "False" else "False" for mark in FAULTS}
    nodes = [
        reporting(mark.key, status) for mark in FAULTS for status in (well[mark], "Unknown", "")
    ]
    nodes += [labelled(mark.key, mark.value or "True") for mark in FAULTS]
    assert_none(f"{node}: {end}" for node in nodes if (end := announced_end(**node)))


def test_end_counts_before_a_fault() -> None:
    node = reporting("GpuMemWatch") | tainted("karpenter.sh/disrupted")
    assert str(announced_end(**node)) == "announces its end by taint karpenter.sh/disrupted"
    assert (
        str(announced_end(**reporting("GpuMemWatch")))
        == "reports a fault by condition GpuMemWatch=True"
    )


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
    found = [
        announced_end(taints, dated, unschedulable=True)
        for taints in ([soft], [soft, sure], [soft, sure, soon])
    ]
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


@pytest.mark.parametrize(
    ("text", "node", "reports"),
    [
        ("AcmeFabricDown", reporting("AcmeFabricDown"), True),
        ("AcmeFabricDown", reporting("AcmeFabricDown", "False"), False),
        ("AcmeFabricReady=False", reporting("AcmeFabricReady", "False"), True),
        ("AcmeFabricReady=False", reporting("AcmeFabricReady"), False),
        ("acme.io/broken", tainted("acme.io/broken"), True),
        ("acme.io/broken:NoExecute", reporting("acme.io/broken"), False),
    ],
)
def test_faults_of_the_cluster_s_own(text: str, node: dict[str, Any], *, reports: bool) -> None:
    end = announced_end(**node, marks=parse_marks([text], SURE, fault=True))
    assert (end is not None and end.fault) == reports
    assert announced_end(**reporting("acme"), marks=parse_marks(["acme"], SURE)) is None, (
        "no condition announces an end"
    )


@pytest.mark.parametrize("text", ["", "=yes", ":NoSchedule", "acme.io/going:Sometimes"])
def test_key_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not key\[=value\]\[:effect\]"):
        parse_marks([text], SURE)
