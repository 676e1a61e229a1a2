"""Weights of losses that are means over something else than samples: tokens, pixels, those of a class.

How many there are in a batch of the whole group is known only when its last micro-batch is there. So backward goes with weights that
are right but for a factor, the same one on all ranks; after the last micro-batch the gradients are multiplied by it.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class CountedStep:
    """The weights of one step's micro-batches. Each rank must ask for as many, in the same order.

    Args:
        parts: micro-batches of the step, on each rank.
    """

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._left = parts
        self._world_size = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        self._reference: Tensor | None = None  # about how many the batch has: what the weights refer to
        self._total: Tensor | None = None  # how many it has; so far of this rank
        self._pending: Any = None

    def weight(self, count: Tensor) -> Tensor:
        """What to multiply a micro-batch's mean loss by.

        Args:
            count: over how many that mean is, as a scalar of floating point on the loss's device; 0: it counts for nothing.
        """
        if self._reference is None or self._total is None:
            self._total = count.clone()
            first = count.clone()
            if self._world_size > 1:
                dist.all_reduce(first)
            self._reference = _not_zero(first * self._parts)
        else:
            self._total += count
        self._left -= 1
        if self._left == 0 and self._parts > 1 and self._world_size > 1:
            self._pending = dist.all_reduce(self._total, async_op=True)  # while backward goes on
        return count * self._world_size / self._reference

    @torch.no_grad()
    def correct(self, gradients: Iterable[Tensor]) -> None:
        """Multiplies the step's gradients by what the weights lack. With one micro-batch, they lack nothing."""
        if self._parts == 1 or self._reference is None or self._total is None:
            return
        if self._pending is not None:
            self._pending.wait()
        factor = self._reference / _not_zero(self._total)
        for gradient in gradients:
            (gradient.to_local() if hasattr(gradient, "to_local") else gradient).mul_(factor)


def _not_zero(total: Tensor) -> Tensor:
    return torch.where(total > 0, total, torch.ones_like(total))
