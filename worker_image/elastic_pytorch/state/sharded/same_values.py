"""Refuses ranks with the same parameters and other values."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from elastic_pytorch.group.rank_group import gather_objects
from elastic_pytorch.state.sharded.regions import local_part
from elastic_pytorch.state.sharded.stages import parameters_of, shards_number

# Torch adds up no other types, on some devices.
SUMMED = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# Of the norm: ranks that compute the same on devices of two kinds differ by much less.
TOLERANCE = 1e-3


def summary_of(parameters: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Returns sum and norm of this rank's part of parameters."""
    known = [each for each in parameters if each.dtype in SUMMED]
    local = [local_part(each) if isinstance(each, DTensor) else each.detach() for each in known]
    if not local:
        return 0.0, 0.0
    sums = torch.stack([each.sum(dtype=torch.float64).cpu() for each in local])
    norms = torch.stack(
        [torch.linalg.vector_norm(each, dtype=torch.float64).cpu() for each in local]
    )
    return sums.sum().item(), norms.norm().item()


def first_unlike(summaries: Sequence[tuple[int, float, float]]) -> tuple[int, int] | None:
    """Returns the first two ranks with other values (sum, norm) for one number of shards."""
    firsts: dict[int, int] = {}
    for rank, (shards, total, norm) in enumerate(summaries):
        first = firsts.setdefault(shards, rank)
        if abs(total - summaries[first][1]) > TOLERANCE * max(norm, summaries[first][2]):
            return first, rank
    return None


def refuse_other_values(
    objects: Mapping[str, Any], stage: int, group: dist.ProcessGroup | None
) -> None:
    """Raises a RuntimeError, on all ranks, unless the same shards have the same values.

    Values that are not sharded must be the same on all ranks of a stage. Collective; to be called
    after a step.
    """
    parameters = list(parameters_of(objects).values())
    sharded = summary_of([each for each in parameters if isinstance(each, DTensor)])
    whole = summary_of([each for each in parameters if not isinstance(each, DTensor)])
    summaries = ((shards_number(objects, stage), *sharded), (stage, *whole))
    of_shards, of_stages = zip(*gather_objects(summaries, group), strict=True)
    if (unlike := first_unlike(of_shards) or first_unlike(of_stages)) is not None:
        raise RuntimeError(
            f"ranks {unlike[0]} and {unlike[1]} have the same parameters, by name, "
            "shape and place, and other values in them: a new group would get those of one. "
            "Give the parameters of pipeline stages their names in the whole model, "
            "and make the parts of a tensor DTensors; or the gradients are not averaged over these "
            "ranks"
        )
