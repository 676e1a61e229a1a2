"""How many workers a group has, by the pods of the old job and by torchrun's `--nnodes`."""

from collections.abc import Mapping
from typing import Any

from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks


def group_size(path: str, pods: int, options: Mapping[str, str], remarks: Remarks) -> dict[str, Any]:
    """`replicas`, and the bounds of an elastic job: torchrun's own `--nnodes` wins, as it does there.

    Raises:
        CannotMigrate: each pod trained by itself.
    """
    bounds = nnodes_bounds(options.get("nnodes", ""))
    if pods > 1 and ("standalone" in options or bounds == (1, 1)):
        raise CannotMigrate(
            path,
            f"each of the {pods} pods trains by itself (--standalone, or --nnodes=1), as in a sweep. Write a Job of one pod for each "
            "training",
        )
    if bounds is None or bounds == (pods, pods):
        return {"replicas": pods}
    least, most = bounds
    replicas = min(max(pods, least), most)
    if replicas != pods:
        remarks.add(path, f"{pods} pods are not what --nnodes={options['nnodes']} waits for: replicas is {replicas}")
    return {"replicas": replicas} if least == most else {"replicas": replicas, "minReplicas": least, "maxReplicas": most}


def nnodes_bounds(nnodes: str) -> tuple[int, int] | None:
    """The least and the most nodes of `--nnodes`, written as `4` or `2:6`; None: it is neither."""
    low, _, high = nnodes.partition(":")
    high = high or low
    return (int(low), int(high)) if low.isdecimal() and high.isdecimal() and 1 <= int(low) <= int(high) else None
