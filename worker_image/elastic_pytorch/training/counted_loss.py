"""Weights of losses that are means over tokens, pixels or other things than samples.

Their number in a batch of the whole group is known only after its last micro-batch. So backward
uses weights that are right up to a factor, which is the same on all ranks; after the last
micro-batch the gradients are multiplied by that factor.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from elastic_pytorch.training.data_parallel import DataParallel


class CountedStep:
    """The weights of one step; all ranks request as many, in the same order."""

    def __init__(self, parts: int, ranks: DataParallel) -> None:
        self._parts = parts
        self._left = parts
        self._ranks = ranks
        self._world_size = ranks.place()[1]
        # An estimate of the batch's count, to which the weights refer.
        self._reference: Tensor | None = None
        self._total: Tensor | None = None  # the batch's count; so far, this rank's part
        self._pending: Any = None

    def weight(self, count: Tensor) -> Tensor:
        """Returns the factor for a micro-batch's mean loss.

        `count` is a floating-point scalar on the loss's device; at 0 the micro-batch does not
        count.
        """
        if self._reference is None or self._total is None:
            self._total = count.clone()
            first = count.clone()
            if (pending := self._ranks.add_up(first)) is not None:
                pending.wait()
            self._reference = _not_zero(first * self._parts)
        else:
            self._total += count
        self._left -= 1
        if self._left == 0 and self._parts > 1:
            self._pending = self._ranks.add_up(self._total)  # in parallel to backward
        return count * self._world_size / self._reference

    @torch.no_grad()
    def correct(self, gradients: Iterable[Tensor]) -> None:
        if self._parts == 1 or self._reference is None or self._total is None:
            return
        if self._pending is not None:
            self._pending.wait()
        factor = self._reference / _not_zero(self._total)
        for gradient in gradients:
            (gradient.to_local() if hasattr(gradient, "to_local") else gradient).mul_(factor)


def _not_zero(total: Tensor) -> Tensor:
    return torch.where(total > 0, total, torch.ones_like(total))
