"""The device mesh of a group of units, each with a replica of the model."""

import os
from collections.abc import Sequence
from math import prod

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from elastic_pytorch.pod.group_variables import unit_processes

REPLICATE = "replicate"
IN_A_JOB = "ELASTIC_PYTORCH_JOB_UID"


def unit_mesh(
    names: Sequence[str], sizes: Sequence[int] | None = None, *, device_type: str | None = None
) -> DeviceMesh:
    """Returns the mesh of the current group; all ranks call it, in each group.

    Its first dimension is "replicate", over the units. In a job, `spec.unitReplicas` pods make a
    unit; elsewhere, as many processes as the sizes multiply to, or without sizes those of one node.

    Args:
        names: the dimensions within a unit, the outermost first.
        sizes: the sizes of these dimensions. None: there is one, of all processes of the unit.
        device_type: that of the tensors. None: "cuda" if there is a GPU and the group's backend is
            not gloo, otherwise "cpu".

    Raises:
        RuntimeError: there is no process group, or it does not consist of whole units.
        ValueError: the names or sizes are invalid, or do not multiply to a unit's processes.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError("unit_mesh is of a group: call init_process_group first")
    if device_type is None:
        device_type = (
            "cuda" if torch.cuda.is_available() and dist.get_backend() != "gloo" else "cpu"
        )
    unit = unit_processes() if sizes is None or IN_A_JOB in os.environ else prod(sizes)
    shape = mesh_shape(dist.get_world_size(), unit, names, sizes)
    return init_device_mesh(device_type, shape, mesh_dim_names=(REPLICATE, *names))


def mesh_shape(
    world_size: int, unit: int, names: Sequence[str], sizes: Sequence[int] | None
) -> tuple[int, ...]:
    if isinstance(names, str) or not names:
        raise ValueError(f'names are a sequence of one name at least, as in ("tp",), not {names!r}')
    if len({REPLICATE, *names}) <= len(names):
        raise ValueError(
            f'names are {tuple(names)}: each is there once, and "{REPLICATE}" is the dimension '
            "over the units"
        )
    if sizes is None and len(names) > 1:
        raise ValueError(
            f"give the sizes of {', '.join(names)}: only a single dimension has the size of the "
            "unit"
        )
    sizes = (unit,) if sizes is None else tuple(sizes)
    if len(sizes) != len(names) or min(sizes) < 1:
        raise ValueError(f"sizes are {sizes}: each of {', '.join(names)} has a size of at least 1")
    if prod(sizes) != unit:
        product = " x ".join(map(str, sizes))
        raise ValueError(
            f"sizes are {product} = {prod(sizes)}, and a unit has {unit} processes: "
            "spec.unitReplicas times the processes of a pod"
        )
    if world_size % unit:
        raise RuntimeError(
            f"the group has {world_size} processes, which are no whole units of {unit}"
        )
    return world_size // unit, *sizes
