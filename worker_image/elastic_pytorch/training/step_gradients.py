"""The gradients of a step, which only its micro-batches change."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor

from elastic_pytorch.training.micro_batches import Part

CHANGED = (
    "the gradients of this step were cleared or changed by something else than its micro-batches' "
    "backward, so the step would not be that of its whole batch. With `steps`, "
    "call zero_grad before the loop over step.parts, and clip below it; "
    "only step.backward adds to the gradients. In a loop with `part`, "
    "zero_grad and clipping belong to the optimizer's step, below `if part.last`"
)


class StepGradients:
    """Detects changed gradients by one parameter, as clearing and clipping change all."""

    def __init__(self) -> None:
        self._parameter: Tensor | None = None
        # Its gradient, and torch's count of changes in place.
        self._left: tuple[Tensor | None, int] = None, 0

    def note(self, parameters: Iterable[Tensor] = ()) -> None:
        """Notes the gradients, by the known parameter or the first with one."""
        self._find(parameters)
        self._left = self._now()

    def check(self, parameters: Iterable[Tensor] = ()) -> None:
        """Raises a RuntimeError if the gradients are not as noted."""
        self._find(parameters)
        if not self._unchanged():
            raise RuntimeError(CHANGED)

    def still_there(self) -> bool:
        return self._left[0] is not None and self._unchanged()

    @contextmanager
    def adding(self, model: Any, part: Part, *, first: bool, reduce: bool) -> Iterator[None]:
        """Returns a micro-batch's context, in which using its weight checks the gradients."""
        if not first:
            part.check = self.check
        with _reduction(model, reduce):
            yield
        if not part.last and hasattr(model, "parameters"):
            self.note(model.parameters())

    def _find(self, parameters: Iterable[Tensor]) -> None:
        if self._parameter is None:
            self._parameter = next((each for each in parameters if each.grad is not None), None)

    def _now(self) -> tuple[Tensor | None, int]:
        gradient = None if self._parameter is None else self._parameter.grad
        return gradient, 0 if gradient is None else gradient._version

    def _unchanged(self) -> bool:
        gradient, version = self._now()
        return gradient is self._left[0] and version == self._left[1]


def _reduction(model: Any, reduce: bool) -> AbstractContextManager[Any]:
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(reduce)
    elif not reduce and hasattr(model, "no_sync"):
        context: AbstractContextManager[Any] = model.no_sync()
        return context
    return nullcontext()
