"""What a node announces of its own end: the taints and labels of autoscalers, clouds and Kubernetes, and keys of the cluster's own.

Sources: aws-node-termination-handler pkg/node/node.go, Karpenter pkg/apis/v1/taints.go, Cluster Autoscaler utils/taints/taints.go, GKE's
"Manage GKE node disruption for GPUs and TPUs", AKS' "Node auto-drain", and Kubernetes' well-known taints.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from elastic_pytorch_operator.api.times import write_time

NOTICE_SECONDS = 120.0  # AWS's notice for spot instances, the shortest one after which a node may end without an eviction


class Taint(NamedTuple):
    """What keeps pods without a toleration off a node."""

    key: str
    value: str
    effect: str


class Certainty(StrEnum):
    """How sure an end is."""

    SURE = "sure"  # it comes soon
    DATED = "dated"  # it comes at a known time
    SOFT = "soft"  # it may come


@dataclass(frozen=True, slots=True)
class AnnouncedEnd:
    """The end of a node, as something in the cluster announces it.

    Attributes:
        by: what announces it, for people.
        certainty: how sure it is.
        notice_seconds: from the announcement to the earliest end, if it is sure.
        at: when it comes, RFC 3339, if it is dated.
        taint: the taint that announces it; None: something else does.
    """

    by: str
    certainty: Certainty
    notice_seconds: float = NOTICE_SECONDS
    at: str = ""
    taint: Taint | None = None


class Mark(NamedTuple):
    """A taint or a label that announces an end; an empty value or effect stands for any, an effect for a taint."""

    key: str
    certainty: Certainty
    value: str = ""
    effect: str = ""
    notice_seconds: float = NOTICE_SECONDS
    on: tuple[str, ...] = ("taint",)


_AWS = "aws-node-termination-handler"
_GKE = "cloud.google.com"
MAINTENANCE_TIME = f"{_GKE}/scheduled-maintenance-time"  # a label, seconds since 1970
MARKS = (
    Mark(f"{_AWS}/spot-itn", Certainty.SURE),
    Mark(f"{_AWS}/asg-lifecycle-termination", Certainty.SURE),
    Mark(f"{_AWS}/scheduled-maintenance", Certainty.SURE),  # without a date: the handler sets it as it begins to drain
    Mark(f"{_AWS}/rebalance-recommendation", Certainty.SOFT),
    Mark("karpenter.sh/disrupted", Certainty.SURE),
    Mark("karpenter.sh/disruption", Certainty.SURE, value="disrupting"),
    Mark("ToBeDeletedByClusterAutoscaler", Certainty.SURE),
    Mark("DeletionCandidateOfClusterAutoscaler", Certainty.SOFT),
    Mark(f"{_GKE}/impending-node-termination", Certainty.SURE, notice_seconds=30.0),
    Mark(f"{_GKE}/active-node-maintenance", Certainty.SURE, value="ONGOING", on=("label",)),
    Mark("remediator.kubernetes.azure.com/unschedulable", Certainty.SURE),
    Mark("node.kubernetes.io/out-of-service", Certainty.SURE, notice_seconds=0.0),
    Mark("node.cloudprovider.kubernetes.io/shutdown", Certainty.SURE, notice_seconds=0.0),
)


def parse_marks(texts: Iterable[str], certainty: Certainty) -> tuple[Mark, ...]:
    """Marks of the cluster's own, written as `key`, `key=value`, `key:effect` or `key=value:effect`.

    Without an effect, both taints and labels of that key announce an end.

    Raises:
        ValueError: one has no key, or an effect that Kubernetes does not have.
    """
    marks = []
    for text in texts:
        name, _, effect = text.partition(":")
        key, _, value = name.partition("=")
        if not key or effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
            raise ValueError(
                f"{text!r} is not key[=value][:effect] with an effect of NoSchedule, PreferNoSchedule or NoExecute"
            )
        marks.append(Mark(key, certainty, value, effect, on=("taint",) if effect else ("taint", "label")))
    return tuple(marks)


def announced_end(
    taints: Iterable[Taint],
    labels: Mapping[str, str],
    *,
    deleting: bool = False,
    unschedulable: bool = False,
    marks: Iterable[Mark] = MARKS,
) -> AnnouncedEnd | None:
    """The surest and soonest end that a node announces; None: it announces none.

    Args:
        taints: all of the node's, those with PreferNoSchedule included.
        labels: of the node.
        deleting: the Node object has a deletionTimestamp.
        unschedulable: the node is cordoned.
        marks: what announces an end, beside these.
    """
    found = []
    by_key: dict[str, list[Taint]] = {}
    for taint in taints:
        by_key.setdefault(taint.key, []).append(taint)
    for mark in marks:
        for taint in by_key.get(mark.key, ()) if "taint" in mark.on else ():
            if mark.value in ("", taint.value) and mark.effect in ("", taint.effect):
                found.append(AnnouncedEnd(f"taint {mark.key}", mark.certainty, mark.notice_seconds, taint=taint))
        if "label" in mark.on and mark.key in labels and mark.value in ("", labels[mark.key]):
            found.append(AnnouncedEnd(f"label {mark.key}={labels[mark.key]}", mark.certainty, mark.notice_seconds))
    if deleting:
        found.append(AnnouncedEnd("the deletion of the Node object", Certainty.SURE))
    if (date := labels.get(MAINTENANCE_TIME, "")).isdecimal() and len(date) <= 11:
        at = write_time(datetime.fromtimestamp(int(date), UTC))
        found.append(AnnouncedEnd(f"label {MAINTENANCE_TIME}={date}", Certainty.DATED, at=at))
    if unschedulable:
        found.append(AnnouncedEnd("spec.unschedulable", Certainty.SOFT))
    order = list(Certainty)
    return min(found, key=lambda end: (order.index(end.certainty), end.notice_seconds), default=None)
