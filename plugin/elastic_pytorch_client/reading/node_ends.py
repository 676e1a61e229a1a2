"""The ends and faults that nodes announce, by the operator's own marks (docs/use/scheduling.md).

The operator may have more marks of its cluster, which a client does not know.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

MAX_SECONDS_DIGITS = 11
MAINTENANCE_TIME = "cloud.google.com/scheduled-maintenance-time"  # a label, seconds since 1970


class Mark(NamedTuple):
    """A taint, a label or a condition; an empty value is any, or a condition's True."""

    on: str
    key: str
    sure: bool
    fault: bool
    value: str = ""


def _ends(*keys: str, sure: bool = True) -> tuple[Mark, ...]:
    return tuple(Mark("taint", key, sure, False) for key in keys)


def _faults(
    *keys: str, sure: bool = True, on: str = "condition", value: str = ""
) -> tuple[Mark, ...]:
    return tuple(Mark(on, key, sure, True, value) for key in keys)


MARKS = (
    *_ends(
        *(
            f"aws-node-termination-handler/{what}"
            for what in ("spot-itn", "asg-lifecycle-termination", "scheduled-maintenance")
        ),
        *("karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"),
        "cloud.google.com/impending-node-termination",
        *("remediator.kubernetes.azure.com/unschedulable", "node.kubernetes.io/out-of-service"),
        "node.cloudprovider.kubernetes.io/shutdown",
    ),
    Mark("taint", "karpenter.sh/disruption", True, False, "disrupting"),
    Mark("label", "cloud.google.com/active-node-maintenance", True, False, "ONGOING"),
    *_ends("aws-node-termination-handler/rebalance-recommendation", sure=False),
    *_ends("DeletionCandidateOfClusterAutoscaler", sure=False),
    *_faults("nvidia.com/gpu-xid-error", "nvidia.com/gpu-nvlink-error", on="taint"),
    *_faults("nvidia.com/syslog-xid-error", "nvidia.com/gpu-error", on="taint"),
    *_faults("GpuMemWatch", "GpuPcieWatch", "GpuInforomWatch", "GpuSmWatch", "GpuNvlinkWatch"),
    *_faults("GpuMcuWatch", "GpuPmuWatch", "GpuDriverWatch"),
    *_faults("SysLogsXIDError", "SysLogsSXIDError", "SysLogsGPUFallenOff", "SysLogsNICDriverError"),
    *_faults("NVSwitchFatalError", "NVSwitchDown", "CSPMaintenance", "GPUMissing"),
    *_faults("NVLinkStatusInactive"),
    *_faults("InfiniBandStateCheck", "InfiniBandDegradationCheck"),
    *_faults("EthernetStateCheck", "EthernetDegradationCheck"),
    *_faults("EFAStateCheck", "EFADegradationCheck"),
    *_faults("AcceleratedHardwareReady", value="False"),
    *_faults("KernelReady", "NetworkingReady", "StorageReady", value="False", sure=False),
    *_faults("ContainerRuntimeReady", value="False", sure=False),
    *_faults("GpuThermalWatch", "GpuPowerWatch", "GpuCpusetWatch", sure=False),
    *_faults("NVSwitchNonFatalError", "DCGMError", "SyslogError", sure=False),
    *_faults("KernelDeadlock", "ReadonlyFilesystem", "XfsShutdown", sure=False),
    *_faults("XIDErrors", "IBLinkFlapping", "GPUClockThrottling", sure=False),
    *_faults("UnhealthyNvidiaDevicePlugin", "VMEventScheduled", sure=False),
    *_faults("FrequentKubeletRestart", "FrequentContainerdRestart", sure=False),
    *_faults("FrequentDockerRestart", sure=False),
)


@dataclass(frozen=True, slots=True)
class NodeEnd:
    what: str  # follows the node's name in a sentence
    sure: bool  # soon, or with a fault of what trains there; otherwise it may come
    fault: bool = False
    at: datetime | None = None  # None: unknown


def find_end(node: Mapping[str, Any]) -> NodeEnd | None:
    """The surest end or fault that a node's manifest announces; a cordon alone is neither."""
    metadata, status = node.get("metadata") or {}, node.get("status") or {}
    labels: Mapping[str, Any] = metadata.get("labels") or {}
    listed = (node.get("spec") or {}).get("taints") or ()
    checked = status.get("conditions") or ()
    borne: dict[str, Mapping[str, Any]] = {
        "taint": {str(taint.get("key")): str(taint.get("value") or "") for taint in listed},
        "label": labels,
        "condition": {str(each.get("type")): str(each.get("status")) for each in checked},
    }
    found = []
    for mark in MARKS:
        wanted = mark.value or ("True" if mark.on == "condition" else "")
        if mark.key in borne[mark.on] and wanted in ("", borne[mark.on][mark.key]):
            does = "reports a fault" if mark.fault else "announces its end"
            value = f"={borne[mark.on][mark.key]}" if mark.on != "taint" else ""
            what = f"{does} by {mark.on} {mark.key}{value}"
            found.append(NodeEnd(what, mark.sure, mark.fault))
    if metadata.get("deletionTimestamp"):
        found.append(NodeEnd("announces its end by the deletion of the Node object", sure=True))
    date = str(labels.get(MAINTENANCE_TIME, ""))
    if date.isascii() and date.isdecimal() and len(date) <= MAX_SECONDS_DIGITS:
        at = datetime.fromtimestamp(int(date), UTC)
        what = f"announces its end by label {MAINTENANCE_TIME}={date}"
        found.append(NodeEnd(what, sure=True, at=at))
    return min(found, key=lambda end: (not end.sure, end.at is not None), default=None)
