"""The gradients of a step's micro-batches: added up on each rank, reduced in the last one, and touched by nothing between two of them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor

from elastic_pytorch.training.micro_batches import Part

CHANGED = (
    "the gradients that this step's earlier micro-batches have left were cleared or changed, so the step would not be that of its whole "
    "batch. Leave zero_grad and clipping out of the body: `steps` clears the gradients itself, and calls before_step to clip them. In a "
    "loop with `part`, both belong to the optimizer's step, below `if part.last`"
)


class StepGradients:
    """What a step's micro-batches have left so far, known by one parameter: clearing and clipping change all of them."""

    def __init__(self) -> None:
        self._left: tuple[Tensor, Tensor, int] | None = (
            None  # a parameter, its gradient, and how often that was changed in place
        )

    @contextmanager
    def adding(self, model: Any, part: Part, *, first: bool, reduce: bool) -> Iterator[None]:
        """Returns a context for a micro-batch's forward and backward, in which the use of the part's weight checks the gradients.

        Args:
            model: that computes the loss; None: it is not known.
            part: the micro-batch.
            first: whether it is the first one of its step.
            reduce: whether its gradients are reduced over the ranks.
        """
        if first:
            self._left = None
        part.check = self._check
        with _reduction(model, reduce):
            yield
        found = None if part.last or not hasattr(model, "parameters") else _first_gradient(model)
        self._left = None if found is None else (*found, found[1]._version)

    def _check(self) -> None:
        """Checks that the gradients are those that the micro-batch before has left.

        Raises:
            RuntimeError: they are not.
        """
        if self._left is not None and (self._left[0].grad is not self._left[1] or self._left[1]._version != self._left[2]):
            raise RuntimeError(CHANGED)


def _first_gradient(model: Any) -> tuple[Tensor, Tensor] | None:
    return next(((each, each.grad) for each in model.parameters() if each.grad is not None), None)


def _reduction(model: Any, reduce: bool) -> AbstractContextManager[Any]:
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(reduce)
    elif not reduce and hasattr(model, "no_sync"):
        context: AbstractContextManager[Any] = model.no_sync()
        return context
    return nullcontext()
