"""What a node announces of its own end, and which faults it reports: the marks that the operator reads, too (docs/use/scheduling.md).

The operator may have been given more marks, of the cluster's own: a client does not know those.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

MAX_SECONDS_DIGITS = 11
MAINTENANCE_TIME = "cloud.google.com/scheduled-maintenance-time"  # a label, seconds since 1970


class Mark(NamedTuple):
    """A taint, a label or a condition.

    An empty value stands for any, and for the status True of a condition.
    """

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
        *(
            "karpenter.sh/disrupted",
            "ToBeDeletedByClusterAutoscaler",
            "cloud.google.com/impending-node-termination",
        ),
        *("remediator.kubernetes.azure.com/unschedulable", "node.kubernetes.io/out-of-service"),
        "node.cloudprovider.kubernetes.io/shutdown",
    ),
    Mark("taint", "karpenter.sh/disruption", True, False, "disrupting"),
    Mark("label", "cloud.google.com/active-node-maintenance", True, False, "ONGOING"),
    *_ends(
        "aws-node-termination-handler/rebalance-recommendation",
        "DeletionCandidateOfClusterAutoscaler",
        sure=False,
    ),
    *_faults(
        *(
            f"nvidia.com/{what}"
            for what in ("gpu-xid-error", "gpu-nvlink-error", "syslog-xid-error", "gpu-error")
        ),
        on="taint",
    ),
    *_faults(
        *(
            f"Gpu{what}Watch"
            for what in ("Mem", "Pcie", "Inforom", "Sm", "Nvlink", "Mcu", "Pmu", "Driver")
        )
    ),
    *_faults("SysLogsXIDError", "SysLogsSXIDError", "SysLogsGPUFallenOff", "SysLogsNICDriverError"),
    *_faults(
        "NVSwitchFatalError", "NVSwitchDown", "CSPMaintenance", "GPUMissing", "NVLinkStatusInactive"
    ),
    *_faults(
        *(
            f"{kind}{check}"
            for kind in ("InfiniBand", "Ethernet", "EFA")
            for check in ("StateCheck", "DegradationCheck")
        )
    ),
    *_faults("AcceleratedHardwareReady", value="False"),
    *_faults(
        *(f"{what}Ready" for what in ("Kernel", "Networking", "Storage", "ContainerRuntime")),
        value="False",
        sure=False,
    ),
    *_faults(
        "GpuThermalWatch", "GpuPowerWatch", "GpuCpusetWatch", "NVSwitchNonFatalError", sure=False
    ),
    *_faults(
        "DCGMError",
        "SyslogError",
        "KernelDeadlock",
        "ReadonlyFilesystem",
        "XfsShutdown",
        sure=False,
    ),
    *_faults("XIDErrors", "IBLinkFlapping", "GPUClockThrottling", sure=False),
    *_faults("UnhealthyNvidiaDevicePlugin", "VMEventScheduled", sure=False),
    *_faults(
        "FrequentKubeletRestart", "FrequentContainerdRestart", "FrequentDockerRestart", sure=False
    ),
)


@dataclass(frozen=True, slots=True)
class NodeEnd:
    what: str  # follows the node's name in a sentence
    sure: bool  # it ends soon, or what trains there breaks; otherwise it may
    fault: bool = False
    at: datetime | None = None  # when it ends; None: not known


def find_end(node: Mapping[str, Any]) -> NodeEnd | None:
    """The surest end that a node's manifest announces, or fault that it reports; None: neither.

    A cordon alone is none.
    """
    metadata, status = node.get("metadata") or {}, node.get("status") or {}
    labels: Mapping[str, Any] = metadata.get("labels") or {}
    taints = {
        str(taint.get("key")): str(taint.get("value") or "")
        for taint in (node.get("spec") or {}).get("taints") or ()
    }
    conditions = {
        str(each.get("type")): str(each.get("status")) for each in status.get("conditions") or ()
    }
    borne: dict[str, Mapping[str, Any]] = {
        "taint": taints,
        "label": labels,
        "condition": conditions,
    }
    found = []
    for mark in MARKS:
        wanted = mark.value or ("True" if mark.on == "condition" else "")
        if mark.key in borne[mark.on] and wanted in ("", borne[mark.on][mark.key]):
            by = f"{mark.on} {mark.key}" + (
                f"={borne[mark.on][mark.key]}" if mark.on != "taint" else ""
            )
            found.append(
                NodeEnd(
                    f"{'reports a fault' if mark.fault else 'announces its end'} by {by}",
                    mark.sure,
                    mark.fault,
                )
            )
    if metadata.get("deletionTimestamp"):
        found.append(NodeEnd("announces its end by the deletion of the Node object", sure=True))
    date = str(labels.get(MAINTENANCE_TIME, ""))
    if date.isascii() and date.isdecimal() and len(date) <= MAX_SECONDS_DIGITS:
        at = datetime.fromtimestamp(int(date), UTC)
        found.append(
            NodeEnd(f"announces its end by label {MAINTENANCE_TIME}={date}", sure=True, at=at)
        )
    return min(found, key=lambda end: (not end.sure, end.at is not None), default=None)
