"""Which ranks take different samples."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

GIVE_MESH = 'give the data-parallel one to the sampler: ElasticSampler(…, mesh=mesh["dp"])'

ONE_SAMPLE = ("cp", "pp", "sp", "tp")  # dimensions whose ranks usually compute one sample together


class DataParallel:
    """The data-parallel ranks: those of a mesh, of any number of dimensions, or all ranks.

    Ranks that share one place among them compute the same samples.
    """

    def __init__(self, mesh: "DeviceMesh | None" = None) -> None:
        if mesh is not None and mesh.get_coordinate() is None:
            raise ValueError(f"mesh: this rank is not in {mesh}, so there are no samples for it")
        together = [
            name for name in (mesh is not None and mesh.mesh_dim_names) or () if name in ONE_SAMPLE
        ]
        if together:
            raise ValueError(
                f"mesh: ranks along {' and '.join(together)} compute one sample together, "
                "and each would get another one: give only the "
                'data-parallel dimensions, as in mesh["replicate"]'
            )
        self.mesh = mesh

    def place(self) -> tuple[int, int]:
        if self.mesh is None:
            return (dist.get_rank(), dist.get_world_size()) if _grouped() else (0, 1)
        rank = 0
        for size, coordinate in zip(self.mesh.shape, self.mesh.get_coordinate() or (), strict=True):
            rank = rank * size + coordinate
        return rank, self.mesh.size()

    def add_up(self, number: Tensor) -> Any:
        """Starts to sum a tensor in place over these ranks. Collective.

        Returns the work to wait for, if there are several.
        """
        if self.place()[1] == 1:
            return None
        if self.mesh is None:
            return dist.all_reduce(number, async_op=True)
        *first, last = self.mesh.get_all_groups()
        for group in first:
            dist.all_reduce(number, group=group)
        return dist.all_reduce(number, group=last, async_op=True)

    def check(self, model: torch.nn.Module) -> None:
        """Raises a RuntimeError if a model is parallel over other ranks than these."""
        if not _grouped() or dist.get_world_size() == 1:
            return
        reduced = [set(ranks) for ranks in _reduced_over(model)]
        if self.mesh is None:
            world = dist.get_world_size()
            for ranks in reduced:
                if len(ranks) < world:
                    raise RuntimeError(
                        f"the model's gradients are averaged over {len(ranks)} of {world} ranks: "
                        f"{GIVE_MESH}"
                    )
            _refuse_beyond_data(model, world)
            return
        mine = set(self.mesh.mesh.flatten().tolist())
        if reduced and not any(mine <= ranks for ranks in reduced):
            raise RuntimeError(
                f"the ElasticSampler's mesh has ranks {sorted(mine)}, "
                f"and the model's gradients are averaged over ranks {sorted(reduced[0])}: "
                "give both the same mesh"
            )


def _grouped() -> bool:
    return dist.is_available() and dist.is_initialized()


def _reduced_over(model: torch.nn.Module) -> Iterator[list[int]]:
    """Yields the ranks over which gradients are averaged, as far as torch shows that."""
    model = getattr(model, "_orig_mod", model)  # compiled
    if isinstance(model, DistributedDataParallel):
        yield dist.get_process_group_ranks(model.process_group)
    for module in model.modules():
        # Torch has no public way to ask.
        state: Any = getattr(module, "_get_fsdp_state", lambda: None)()
        only = getattr(state, "_fsdp_param_group", None)  # of a release in which a module has one
        for group in filter(None, getattr(state, "_fsdp_param_groups", [only])):
            yield group.mesh_info.mesh.mesh.flatten().tolist()


def _refuse_beyond_data(model: torch.nn.Module, world_size: int) -> None:
    sharded = any(hasattr(module, "set_requires_gradient_sync") for module in model.modules())
    parameter: Any
    for name, parameter in model.named_parameters():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is None:
            continue
        cuts = sum(not placement.is_replicate() for placement in parameter.placements)
        if cuts > 1 or mesh.size() != world_size or not sharded:
            raise RuntimeError(
                f"{name} is on {mesh}, which is parallel over more than the data: "
                "of ranks that share a sample, each would get another one. "
                f"If the mesh has a data-parallel dimension, {GIVE_MESH}"
            )
