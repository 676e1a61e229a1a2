"""One step of the training loop: its parts, and the gradients that only these change."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from torch import Tensor

from elastic_pytorch.state.step_boundary import any_rank
from elastic_pytorch.training.micro_batches import Part

if TYPE_CHECKING:
    from elastic_pytorch.training.training_loop import Loop

NOT_GONE_THROUGH = (
    "the parts of this step are not gone through: write `for batch in step.parts:`, to its end, "
    "and optimizer.step() below that loop. A batch of several steps is a larger batch_size"
)
CHANGED = (
    "the gradients of this step were cleared or changed by something else than its micro-batches' "
    "backward, so the step would not be that of its whole batch. With `steps`, "
    "call zero_grad before the loop over step.parts, and clip below it; "
    "only step.backward adds to the gradients. In a loop with `part`, "
    "zero_grad and clipping belong to the optimizer's step, below `if part.last`"
)


class Step:
    """One step of the training: this rank's share of the group's batch, in one part or several.

    Attributes:
        number: of the step, from 1.
        epoch: of its batch, from 0.
        ends_epoch: whether it is the last one of its epoch.
    """

    def __init__(self, loop: "Loop", batches: Iterator[Any], *, epoch: int) -> None:
        self._loop, self._batches = loop, batches
        self._begun = False
        self._part: Part | None = None  # the current one
        self._waits = False  # it, for its backward
        self._all_done = False  # the parts
        self._skipped = False
        self.number = loop.state.step + 1
        self.epoch, self.ends_epoch = epoch, loop.sampler.ends_epoch

    @property
    def parts(self) -> Iterator[Any]:
        """Yields this rank's share of the batch, at once or in pieces.

        Pieces come of a `micro_batch_size`, or of a group that has shrunk. Go through them once, to
        the end, with one `backward` in each.
        """
        if self._begun:
            raise RuntimeError("the parts of a step are gone through once, in one loop")
        self._begun = True
        return self._loop.parts(self, self._batches)

    @property
    def samples(self) -> int:
        """The samples of the current part that count; 0 if it only serves the collectives."""
        return 0 if self._part is None else self._part.samples

    @property
    def last(self) -> bool:
        """Whether the current part is the last one."""
        return self._part is not None and self._part.last

    def backward(self, loss: Tensor, *, count: Tensor | float | None = None) -> None:
        """Runs backward; the step's gradients become those of the mean loss over the whole batch.

        Args:
            loss: the mean over the part; scaled, if there is a scaler:
                `step.backward(scaler.scale(loss))`.
            count: the number that the mean is over, if not samples, such as tokens without padding;
                on all ranks, or on none.

        Raises:
            RuntimeError: it is not called once a part, with a loss of the model that `steps` was
                given; or other code has changed gradients.
        """
        if self._part is None or not self._waits:
            raise RuntimeError(
                "step.backward is called once for each part of a step: add the losses of a part up"
            )
        self._waits = False
        self._loop.backward(self._part, loss, count)

    def skip(self, when: Tensor | bool) -> bool:
        """Returns whether any rank asks to leave this step out; its batch then counts as done.

        All ranks call it after the loop over `parts`, as in
        `if step.skip(not norm.isfinite()): continue`.

        Raises:
            RuntimeError: the parts are not gone through, or the optimizer has taken its step; or a
                peer is lost.
        """
        if not self._all_done:
            raise RuntimeError(NOT_GONE_THROUGH)
        if self._loop.stepped:
            raise RuntimeError(
                "the optimizer has taken this step already: call step.skip before optimizer.step()"
            )
        self._skipped = any_rank(bool(when), self._loop.state._group)
        if self._skipped:
            self._loop.count()
        return self._skipped


class StepGradients:
    """Detects changed gradients by one parameter, as clearing and clipping change all."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._parameter: Tensor | None = None
        # Its gradient, and torch's count of changes in place.
        self._left: tuple[Tensor | None, int] = None, 0

    def note(self, parameters: Iterable[Tensor] = ()) -> None:
        self._find(parameters)
        self._left = self._now()

    def check(self, parameters: Iterable[Tensor] = ()) -> None:
        """Raises a RuntimeError if the gradients are not as noted."""
        self._find(parameters)
        if not self._unchanged():
            raise RuntimeError(CHANGED)

    def still_there(self) -> bool:
        gradient: Any = self._left[0]
        if gradient is None or not self._unchanged():
            return False
        return bool((gradient.to_local() if hasattr(gradient, "to_local") else gradient).norm())

    def _find(self, parameters: Iterable[Tensor]) -> None:
        if self._parameter is None:
            self._parameter = next((each for each in parameters if each.grad is not None), None)

    def _now(self) -> tuple[Tensor | None, int]:
        gradient = None if self._parameter is None else self._parameter.grad
        return gradient, 0 if gradient is None else gradient._version

    def _unchanged(self) -> bool:
        gradient, version = self._now()
        return gradient is self._left[0] and version == self._left[1]


def reduction(model: Any, reduce: bool) -> AbstractContextManager[Any]:
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(reduce)
    elif not reduce and hasattr(model, "no_sync"):
        context: AbstractContextManager[Any] = model.no_sync()
        return context
    return nullcontext()
