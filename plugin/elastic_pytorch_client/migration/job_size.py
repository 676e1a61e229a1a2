"""The number of workers of a group, and of training processes of a pod."""

from collections.abc import Mapping
from typing import Any

from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks

COUNTED_BY_TORCH = ("auto", "cpu", "gpu", "xpu")


def group_size(
    path: str, pods: int, options: Mapping[str, str], remarks: Remarks, least: int | None = None
) -> dict[str, Any]:
    """`replicas`, and the bounds of an elastic job: torchrun's `--nnodes` wins, as in torchrun.

    A group may have begun with the `least` pods, unless torchrun waits for another number.

    Raises:
        CannotMigrate: each pod trained by itself.
    """
    bounds = nnodes_bounds(options.get("nnodes", ""))
    if pods > 1 and ("standalone" in options or bounds == (1, 1)):
        raise CannotMigrate(
            path,
            f"each of the {pods} pods trains by itself (--standalone, or --nnodes=1), as in a "
            "sweep. Write a Job of one pod for each training",
        )
    if bounds is None or bounds == (pods, pods):
        bounds = least or pods, pods
    why = f"{pods} pods are not what --nnodes={options.get('nnodes')} waits for"
    return bounded_size(path, pods, bounds, why, remarks)


def bounded_size(
    path: str, pods: int, bounds: tuple[int, int], why: str, remarks: Remarks
) -> dict[str, Any]:
    """The number within the bounds that is nearest to the pods; says `why` it is another."""
    least, most = bounds
    replicas = min(max(pods, least), most)
    if replicas != pods:
        remarks.add(path, f"{why}: replicas is {replicas}")
    if least == most:
        return {"replicas": replicas}
    return {"replicas": replicas, "minReplicas": least, "maxReplicas": most}


def nnodes_bounds(nnodes: str) -> tuple[int, int] | None:
    """The least and the most nodes of `--nnodes`, as `4` or `2:6`; None: another value."""
    low, _, high = nnodes.partition(":")
    high = high or low
    if low.isdecimal() and high.isdecimal() and 1 <= int(low) <= int(high):
        return int(low), int(high)
    return None


def process_count(
    path: str, given: str, *, started_by: str, accelerators: int, remarks: Remarks
) -> int | str | None:
    """The job's nprocPerNode; None: its default does it, one per accelerator, or one."""
    if started_by == "python":
        return _one(path, given, accelerators, remarks)
    if given.isdecimal():
        return int(given)
    if given not in COUNTED_BY_TORCH:
        unless = "set spec.nprocPerNode, unless it is the number of accelerators"
        remarks.add(path, f"{given} is not known here: {unless}")
        return None
    if accelerators and given in ("auto", "gpu", "xpu"):
        return None
    if given in ("auto", "cpu") and not accelerators:
        remarks.add(
            path,
            f"{given} starts one process for each core of the CPU limit, or of the node without "
            "one, where there are no devices. It is kept; set spec.nprocPerNode to a number to "
            "have the same everywhere",
        )
    return given


def _one(path: str, given: str, accelerators: int, remarks: Remarks) -> int | None:
    """Without torchrun each pod starts one process, whatever the field says."""
    if accelerators > 1 and not given.isdecimal():
        remarks.add(
            path,
            f"each pod started one process, with all {accelerators} accelerators, and so it does "
            "now. For one process for each accelerator, remove spec.nprocPerNode",
        )
    elif given.isdecimal() and int(given) > 1:
        remarks.add(
            path,
            f"each pod started one process, and WORLD_SIZE counted {given} for it. A script that "
            "starts processes itself should let the agent do it: set spec.nprocPerNode to "
            f"{given}, and read RANK, LOCAL_RANK and WORLD_SIZE in the script",
        )
    return 1 if accelerators > 1 else None
