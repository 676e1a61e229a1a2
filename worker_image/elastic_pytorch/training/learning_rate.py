"""Rules that adapt the learning rate to a batch that grows with the group.

The optimizer keeps the current factor, so that it is saved and restored with the changed rates. A
group of another size replaces it.
"""

import math
from typing import Any, Literal

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from elastic_pytorch.training.data_parallel import DataParallel

FACTOR = "world_size_factor"  # by which the rates of a parameter group have been multiplied
RATES = ("lr", "initial_lr", "max_lr", "min_lr")  # the last two are OneCycleLR's


def factor_of(rule: Literal["linear", "sqrt"], world_size: int, base_world_size: int) -> float:
    if base_world_size < 1 or world_size < 1:
        raise ValueError(f"a group has at least one rank, not {min(world_size, base_world_size)}")
    ratio = world_size / base_world_size
    if rule == "linear":
        return ratio
    if rule == "sqrt":
        return math.sqrt(ratio)
    raise ValueError(f"the rules are linear and sqrt, not {rule}")


def scale_learning_rate(
    optimizer: Optimizer,
    scheduler: LRScheduler | None = None,
    *,
    rule: Literal["linear", "sqrt"],
    base_world_size: int,
) -> float:
    """Adapts the learning rate to the size of the group.

    Each group calls it after `State.restore`; a second call changes nothing.

    Args:
        optimizer: the optimizer, whose rates were chosen for `base_world_size`.
        scheduler: its scheduler, if it has one; register both with the State, or neither.
        rule: "linear" multiplies the rates by the world size over `base_world_size`, as is common
            with SGD; "sqrt" by the square root of that, as with Adam.
        base_world_size: the world size for which the rates were chosen.

    Returns:
        The factor by which the chosen rates are multiplied now.

    Raises:
        ValueError: there is no such rule.
        TypeError: the scheduler keeps rates of its own that cannot be scaled.
    """
    schedulers = _with_parts(scheduler)
    for each in schedulers:
        if hasattr(each, "max_lrs"):
            raise TypeError(
                f"the rates of {type(each).__name__} cannot be scaled; "
                "OneCycleLR's and those of most others can"
            )
    factor = factor_of(rule, DataParallel().place()[1], base_world_size)
    for group in optimizer.param_groups:
        _scale(group, factor / group.get(FACTOR, 1.0))
        group[FACTOR] = factor
    for each in schedulers:
        if hasattr(each, "base_lrs"):
            each.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        if hasattr(each, "_last_lr"):  # returned by get_last_lr until the next step
            each._last_lr = [group["lr"] for group in optimizer.param_groups]
    return factor


def _scale(group: dict[str, Any], ratio: float) -> None:
    if ratio == 1.0:
        return
    for name in RATES:
        rate = group.get(name)
        if isinstance(rate, torch.Tensor):
            rate.mul_(ratio)  # a compiled step keeps the tensor
        elif rate is not None:
            group[name] = rate * ratio


def _with_parts(scheduler: Any) -> list[Any]:
    if scheduler is None:
        return []
    return [
        scheduler,
        *(each for part in getattr(scheduler, "_schedulers", []) for each in _with_parts(part)),
    ]
