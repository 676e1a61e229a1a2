"""Empties torch's caches of meshes when their group is left.

torch caches results for sharded tensors by their mesh, and takes meshes of the same ranks, shape
and names for one. In the next group's mesh, this process may have another rank, but would get its
old rank's part of a tensor.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh
from torch.distributed.device_mesh import DeviceMesh

try:
    from torch.distributed.tensor import DTensor, Replicate
except ImportError:  # torch 2.4
    from torch.distributed._tensor import DTensor, Replicate  # type: ignore[attr-defined]

Cache = type(lru_cache(lambda: None))
OWNERS = ("torch.distributed.tensor", "torch.distributed._tensor", "torch.distributed.device_mesh")
# Clears a cache of each of torch's own threads, in releases that have one.
_CLEAR_OF_THREAD = "_clear_DTensor_sharding_propagator_cache"


class _InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, action: Callable[[], None]) -> torch.Tensor:
        ctx.action = action
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.action()
        return gradients[0], None


def forget_meshes() -> None:
    """Called after a group, when nothing is computed in it any more."""
    # Some releases keep flattened meshes here.
    resources = getattr(device_mesh, "_mesh_resources", None)
    for each in vars(resources).values() if resources is not None else ():
        if isinstance(each, dict):
            each.clear()
    _in_threads(_forget_in_thread, torch.device("cuda") if torch.cuda.is_available() else None)


def _forget_in_thread() -> None:
    for cache in caches():
        cache.cache_clear()
    if (clear := getattr(torch._C, _CLEAR_OF_THREAD, None)) is not None:
        clear()


def caches() -> Iterator[Any]:
    """Yields this thread's caches of functions in torch's modules of sharded tensors.

    The search starts from the modules, because the garbage collector does not list the objects of a
    warm process in its forks.
    """
    left: list[Any] = [
        module for name, module in list(sys.modules.items()) if name.startswith(OWNERS)
    ]
    seen = {id(each) for each in left}
    while left:
        for value in list(vars(left.pop()).values()):
            each = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            if id(each) in seen:
                continue
            if type(each) is Cache:
                seen.add(id(each))
                yield each
            elif hasattr(each, "__dict__") and _owner(each).startswith(OWNERS):
                seen.add(id(each))
                left.append(each)


def _owner(each: Any) -> str:
    return str(getattr(each if isinstance(each, type) else type(each), "__module__", ""))


class StaleMesh(RuntimeError):
    """Torch takes a mesh for one of an earlier group."""


def refuse_stale(meshes: Iterable[DeviceMesh]) -> None:
    for mesh in meshes:
        tensor = DTensor.from_local(
            torch.zeros(1, device=mesh.device_type),
            mesh,
            [Replicate()] * mesh.ndim,
            run_check=False,
        )
        results: list[Any] = []

        def add_one(tensor: Any = tensor, results: list[Any] = results) -> None:
            results.append(tensor + 1)

        _in_threads(add_one, torch.device(mesh.device_type))
        if any(result.device_mesh is not mesh for result in results) or not _is_of_this_group(mesh):
            raise StaleMesh(
                f"torch {torch.__version__} takes {mesh} for one of an earlier group: "
                "leave out in_process, so that each group has new processes"
            )


def _is_of_this_group(mesh: DeviceMesh) -> bool:
    """Whether this process has its own place, and each dimension's group has the ranks there."""
    place = (mesh.mesh == dist.get_rank()).nonzero().flatten().tolist()
    if list(mesh.get_coordinate() or ()) != place:
        return False
    for dimension, group in enumerate(mesh.get_all_groups()):
        there = mesh.mesh[
            tuple(slice(None) if each == dimension else number for each, number in enumerate(place))
        ]
        if sorted(dist.get_process_group_ranks(group)) != sorted(there.tolist()):
            return False
    return True


def _in_threads(action: Callable[[], Any], device: torch.device | None) -> None:
    """Calls something in this thread, and in the one that computes gradients on a device."""
    action()
    if device is not None and device.type != "cpu":
        _InBackward.apply(torch.zeros(1, device=device, requires_grad=True), action).backward()
