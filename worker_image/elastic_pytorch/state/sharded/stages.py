"""The stages of a pipeline: ranks of one have the same parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from elastic_pytorch.group.rank_group import RankGroup, digest_number
from elastic_pytorch.state.sharded.regions import region_of
from elastic_pytorch.state.values.registered import first_difference, model_of, refuse_unlike


def parameters_of(objects: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Returns the models' parameters, by name; sharded ones with this rank's shards."""
    models = {
        name: model_of(each)
        for name, each in objects.items()
        if isinstance(model_of(each), torch.nn.Module)
    }
    for module in (module for model in models.values() for module in model.modules()):
        # By name, as its import takes a newer torch.
        if any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
            # Its parameters may be gathered since a forward pass without a backward pass.
            module.reshard()
    return {
        f"{name}.{path}": parameter
        for name, each in models.items()
        for path, parameter in each.named_parameters()
    }


def meshes_of(objects: Mapping[str, Any]) -> set[DeviceMesh]:
    return {
        each.device_mesh for each in parameters_of(objects).values() if isinstance(each, DTensor)
    }


def shards_number(objects: Mapping[str, Any], stage: int) -> int:
    sharded = (
        (name, each) for name, each in parameters_of(objects).items() if isinstance(each, DTensor)
    )
    return digest_number(repr((stage, [(name, region_of(each)) for name, each in sharded])))


def numbers_of(parameters: dict[str, str]) -> list[int]:
    return [digest_number(repr(sorted(parameters))), digest_number(repr(parameters))]


def agree_on_stages(
    group: RankGroup, parameters: dict[str, str], numbers: Sequence[Sequence[int]]
) -> list[int]:
    """Returns a number of each rank's stage; without a pipeline 0.

    It depends only on the names of the parameters. Collective, if ranks have other ones. If ranks
    share only some parameters, or a parameter differs, all ranks raise a RuntimeError.
    """
    stages = [names for names, _ in numbers]
    firsts = [stages.index(stage) for stage in dict.fromkeys(stages)]
    if len(firsts) == 1:
        refuse_unlike(group, parameters, [whole for _, whole in numbers])
        return [0] * len(stages)
    descriptions = {rank: group.broadcast(parameters, rank) for rank in firsts}
    owners: dict[str, int] = {}
    for rank, its in descriptions.items():
        if common := [path for path in its if path in owners]:
            other = owners[common[0]]
            raise RuntimeError(
                f"rank {rank} has something else registered than rank {other}: "
                f"{first_difference(descriptions[other], its, other)}, and both have {common[0]}. "
                "Ranks have the same parameters, or as stages of a pipeline none in common: "
                "each under its name in the whole model"
            )
        owners.update(dict.fromkeys(its, rank))
    first = stages.index(stages[group.rank])
    differs = first_difference(descriptions[first], parameters) is not None
    if [1] in (wrong := group.gather([int(differs)])):
        rank = wrong.index([1])
        first = stages.index(stages[rank])
        its = group.broadcast(parameters, rank)
        raise RuntimeError(
            f"rank {rank} has something else registered than rank {first}, "
            f"which is of the same stage: {first_difference(descriptions[first], its, first)}"
        )
    return stages
