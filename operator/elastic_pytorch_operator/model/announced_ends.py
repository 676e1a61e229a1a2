"""The taints, labels and conditions by which a node announces its end, or reports a fault.

Sources of ends: aws-node-termination-handler pkg/node/node.go, Karpenter pkg/apis/v1/taints.go,
Cluster Autoscaler utils/taints/taints.go, GKE's "Manage GKE node disruption for GPUs and TPUs",
AKS' "Node auto-drain", and Kubernetes' well-known taints.

Sources of faults: NVSentinel docs/INTEGRATIONS.md and docs/nic-health-monitor.md, EKS'
"Automatically repair nodes", AKS' "Node Problem Detector in AKS nodes", and node-problem-detector
config/kernel-monitor.json and config/systemd-monitor-counter.json.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from elastic_pytorch_operator.api.times import write_time

# AWS's notice for spot instances is the shortest one without an eviction.
NOTICE_SECONDS = 120.0


class Taint(NamedTuple):
    key: str
    value: str
    effect: str


class Certainty(StrEnum):
    SURE = "sure"  # the end comes soon
    DATED = "dated"  # it comes at a known time
    SOFT = "soft"  # it may come


@dataclass(frozen=True, slots=True)
class AnnouncedEnd:
    """The end of a node, as announced, or a fault that is as good as one for its workers."""

    by: str  # what announces it, for people
    certainty: Certainty
    notice_seconds: float = NOTICE_SECONDS  # if it is sure; infinite for a fault
    at: str = ""  # RFC 3339, if it is dated
    taint: Taint | None = None  # None: something else announces it
    fault: bool = False

    def __str__(self) -> str:
        return f"{'reports a fault' if self.fault else 'announces its end'} by {self.by}"


class Mark(NamedTuple):
    """An empty value or effect stands for any; of a condition, for the status True."""

    key: str
    certainty: Certainty
    value: str = ""
    effect: str = ""
    notice_seconds: float = NOTICE_SECONDS
    on: tuple[str, ...] = ("taint",)
    fault: bool = False

    def announcement(self, by: str, taint: Taint | None = None) -> AnnouncedEnd:
        return AnnouncedEnd(by, self.certainty, self.notice_seconds, taint=taint, fault=self.fault)


def _faults(
    certainty: Certainty, keys: str, *, value: str = "", on: str = "condition"
) -> tuple[Mark, ...]:
    return tuple(
        Mark(key, certainty, value, notice_seconds=math.inf, on=(on,), fault=True)
        for key in keys.split()
    )


_AWS = "aws-node-termination-handler"
_GKE = "cloud.google.com"
MAINTENANCE_TIME = f"{_GKE}/scheduled-maintenance-time"  # a label, seconds since 1970
ENDS = (
    Mark(f"{_AWS}/spot-itn", Certainty.SURE),
    Mark(f"{_AWS}/asg-lifecycle-termination", Certainty.SURE),
    # Not dated: the handler sets it as it begins to drain.
    Mark(f"{_AWS}/scheduled-maintenance", Certainty.SURE),
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
# A sure fault breaks training or leads to a drain; training may not notice a soft one.
FAULTS = (
    # NVSentinel's examples of taints, which its users may choose, and the conditions that it sets
    # only for fatal errors. By its default rules, such a node is cordoned and drained.
    *_faults(
        Certainty.SURE,
        "nvidia.com/gpu-xid-error nvidia.com/gpu-nvlink-error nvidia.com/syslog-xid-error "
        "nvidia.com/gpu-error",
        on="taint",
    ),
    *_faults(
        Certainty.SURE,
        "GpuMemWatch GpuPcieWatch GpuInforomWatch GpuSmWatch GpuNvlinkWatch GpuMcuWatch "
        "GpuPmuWatch GpuDriverWatch "
        "SysLogsXIDError SysLogsSXIDError SysLogsGPUFallenOff NVSwitchFatalError NVSwitchDown "
        "CSPMaintenance SysLogsNICDriverError "
        "InfiniBandStateCheck InfiniBandDegradationCheck EthernetStateCheck "
        "EthernetDegradationCheck EFAStateCheck EFADegradationCheck",
    ),
    # The first are slow, not broken; with the last two, nothing watches the GPUs.
    *_faults(
        Certainty.SOFT,
        "GpuThermalWatch GpuPowerWatch GpuCpusetWatch NVSwitchNonFatalError DCGMError SyslogError",
    ),
    # EKS repairs the node after ten minutes, or 30 for the others, if its users have that on.
    *_faults(Certainty.SURE, "AcceleratedHardwareReady", value="False"),
    *_faults(
        Certainty.SOFT,
        "KernelReady NetworkingReady StorageReady ContainerRuntimeReady",
        value="False",
    ),
    # AKS. An XID error may be a script's own, and a scheduled event a freeze of seconds.
    *_faults(Certainty.SURE, "GPUMissing NVLinkStatusInactive"),
    *_faults(
        Certainty.SOFT,
        "XIDErrors IBLinkFlapping GPUClockThrottling UnhealthyNvidiaDevicePlugin VMEventScheduled",
    ),
    # node-problem-detector: new pods may not start there.
    *_faults(
        Certainty.SOFT,
        "KernelDeadlock ReadonlyFilesystem XfsShutdown "
        "FrequentKubeletRestart FrequentContainerdRestart FrequentDockerRestart",
    ),
)
MARKS = (*ENDS, *FAULTS)


def parse_marks(
    texts: Iterable[str], certainty: Certainty, *, fault: bool = False
) -> tuple[Mark, ...]:
    """The cluster's own marks, as `key`, `key=value`, `key:effect` or `key=value:effect`.

    Without an effect, taints and labels of the key count, and for a fault conditions, too.
    """
    marks = []
    for text in texts:
        name, _, effect = text.partition(":")
        key, _, value = name.partition("=")
        if not key or effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
            raise ValueError(
                f"{text!r} is not key[=value][:effect] with an effect of NoSchedule, "
                "PreferNoSchedule or NoExecute"
            )
        on: tuple[str, ...] = ("taint",)
        if not effect:
            on = ("taint", "label", "condition") if fault else ("taint", "label")
        marks.append(
            Mark(key, certainty, value, effect, math.inf if fault else NOTICE_SECONDS, on, fault)
        )
    return tuple(marks)


def announced_end(
    taints: Iterable[Taint],
    labels: Mapping[str, str],
    conditions: Mapping[str, str] = MappingProxyType({}),
    *,
    deleting: bool = False,
    unschedulable: bool = False,
    marks: Iterable[Mark] = MARKS,
) -> AnnouncedEnd | None:
    """The surest and soonest end or fault that a node announces."""
    found = []
    by_key: dict[str, list[Taint]] = {}
    for taint in taints:
        by_key.setdefault(taint.key, []).append(taint)
    for mark in marks:
        for taint in by_key.get(mark.key, ()) if "taint" in mark.on else ():
            if mark.value in ("", taint.value) and mark.effect in ("", taint.effect):
                found.append(mark.announcement(f"taint {mark.key}", taint))
        if "label" in mark.on and mark.key in labels and mark.value in ("", labels[mark.key]):
            found.append(mark.announcement(f"label {mark.key}={labels[mark.key]}"))
        if "condition" in mark.on and conditions.get(mark.key) == (mark.value or "True"):
            found.append(mark.announcement(f"condition {mark.key}={conditions[mark.key]}"))
    if deleting:
        found.append(AnnouncedEnd("the deletion of the Node object", Certainty.SURE))
    if (date := labels.get(MAINTENANCE_TIME, "")).isdecimal() and len(date) <= 11:
        at = write_time(datetime.fromtimestamp(int(date), UTC))
        found.append(AnnouncedEnd(f"label {MAINTENANCE_TIME}={date}", Certainty.DATED, at=at))
    if unschedulable:
        found.append(AnnouncedEnd("spec.unschedulable", Certainty.SOFT))
    order = list(Certainty)
    return min(
        found, key=lambda end: (order.index(end.certainty), end.notice_seconds), default=None
    )
