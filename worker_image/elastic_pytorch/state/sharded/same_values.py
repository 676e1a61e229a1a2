"""Refuses ranks that have the same parameters by name and place, and other values: of these, only one rank's would be kept."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from elastic_pytorch.group.rank_group import gather_objects
from elastic_pytorch.state.sharded.regions import local_part
from elastic_pytorch.state.sharded.stages import parameters_of, shards_number

# Torch adds up no others, on each device.
SUMMED = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# Of the norm: ranks that compute the same on devices of two kinds differ by much less.
TOLERANCE = 1e-3


def summary_of(parameters: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Returns the sum and the norm of what this rank has of parameters, those of few bits left out."""
    known = [each for each in parameters if each.dtype in SUMMED]
    local = [local_part(each) if isinstance(each, DTensor) else each.detach() for each in known]
    if not local:
        return 0.0, 0.0
    sums = torch.stack([each.sum(dtype=torch.float64).cpu() for each in local])
    norms = torch.stack(
        [torch.linalg.vector_norm(each, dtype=torch.float64).cpu() for each in local]
    )
    return sums.sum().item(), norms.norm().item()


def first_unlike(told: Sequence[tuple[int, float, float]]) -> tuple[int, int] | None:
    """Returns the first two ranks that have other values where they have the same shards; None: there are none.

    Each rank tells a number of its shards, and their sum and norm.
    """
    firsts: dict[int, int] = {}
    for rank, (shards, total, norm) in enumerate(told):
        first = firsts.setdefault(shards, rank)
        if abs(total - told[first][1]) > TOLERANCE * max(norm, told[first][2]):
            return first, rank
    return None


def refuse_other_values(
    objects: Mapping[str, Any], stage: int, group: dist.ProcessGroup | None
) -> None:
    """Makes sure that ranks with the same shards have the same values in them.

    Collective; to be called after a step.

    All ranks of a stage must have the same values in what is not sharded, whatever shards they have
    besides.

    Raises:
        RuntimeError: on all ranks alike; the message says what to change.
    """
    parameters = list(parameters_of(objects).values())
    sharded = summary_of([each for each in parameters if isinstance(each, DTensor)])
    whole = summary_of([each for each in parameters if not isinstance(each, DTensor)])
    told = gather_objects(((shards_number(objects, stage), *sharded), (stage, *whole)), group)
    of_shards, of_stages = zip(*told, strict=True)
    if (unlike := first_unlike(of_shards) or first_unlike(of_stages)) is not None:
        raise RuntimeError(
            f"ranks {unlike[0]} and {unlike[1]} have the same parameters, by name, shape and place, and other values in them: a new group "
            "would get those of one. Give the parameters of pipeline stages their names in the whole model, and make the parts of a tensor "
            "DTensors; or the gradients are not averaged over these ranks"
        )
