"""How a commit copies tensors into memory: at once from the CPU, asynchronously from a GPU.

A GPU's work is a queue. A copy in that queue sees the values of the commit, and later writes to a
tensor wait for it. A copy beside the queue lets forward and backward of the next step continue,
which only read weights. The optimizer's step waits for it, so only tensors that an optimizer owns
are copied in this way. Another write meanwhile, which the tensors' version counters show, makes the
copy invalid.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch

from elastic_pytorch.log import logger
from elastic_pytorch.memory.gpu_copies import CudaLane, Pair

Tensors = Sequence[torch.Tensor]


class Copy(Protocol):
    def done(self) -> bool: ...
    def finish(self) -> bool:
        """Waits until it is complete; returns whether it is valid."""


class _Complete:
    def done(self) -> bool:
        return True

    def finish(self) -> bool:
        return True


@torch.no_grad()
def copy_at_once(targets: Tensors, sources: Tensors) -> Copy:
    if targets:
        torch._foreach_copy_(list(targets), list(sources))
    return _Complete()


class Copier:
    """With `overlap`, weights and states of optimizers are copied beside the next step."""

    def __init__(self, lane: CudaLane, registered: Iterable[Any], *, overlap: bool) -> None:
        self.held_up_seconds = 0.0  # of the training's own work, by the last finished copy
        self._lane = lane
        self._optimizers = [
            each for each in registered if overlap and isinstance(each, torch.optim.Optimizer)
        ]
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step) for optimizer in self._optimizers
        ]
        # Optimizers that have stepped in this step of the training.
        self._stepped: set[int] = set()
        self._running: _UnderWay | None = None
        self._used_lane = False

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def catch_up(self) -> bool:
        """Waits for a device's own work of this step; returns whether there is such a device."""
        if self._used_lane:
            self._lane.catch_up()
        return self._used_lane

    def end_step(self) -> None:
        """Called when a step of the training is over, perhaps while its commit is being copied."""
        self._stepped.clear()

    @torch.no_grad()
    def copy(self, targets: Tensors, sources: Tensors) -> Copy:
        """The previous copy must be finished."""
        owned = self._owned_memory()
        beside, in_turn, at_once = list[Pair](), list[Pair](), list[Pair]()
        for pair in zip(targets, sources, strict=True):
            _, source = pair
            if not self._lane.takes(source):
                at_once.append(pair)
            elif not source.is_inference() and source.untyped_storage().data_ptr() in owned:
                beside.append(pair)
            else:
                in_turn.append(pair)
        self._used_lane = bool(beside or in_turn)
        if not self._used_lane:
            self.held_up_seconds = 0.0
            return copy_at_once(targets, sources)
        if beside:
            self._lane.copy_beside(beside)
        if in_turn:
            self._lane.copy_in_turn(in_turn)
        copy_at_once([target for target, _ in at_once], [source for _, source in at_once])
        self._running = _UnderWay(self, sources, [source for _, source in beside])
        return self._running

    def _owned_memory(self) -> set[int]:
        """Addresses of tensors that only optimizers write to, if those have been seen to step.

        One that steps unseen, in a recorded graph, would not wait.
        """
        tensors = (
            tensor
            for optimizer in self._optimizers
            if id(optimizer) in self._stepped
            for tensor in (
                *(parameter for group in optimizer.param_groups for parameter in group["params"]),
                *(
                    value
                    for state in optimizer.state.values()
                    for value in state.values()
                    if isinstance(value, torch.Tensor)
                ),
            )
        )
        return {
            tensor.untyped_storage().data_ptr() for tensor in tensors if self._lane.takes(tensor)
        }

    def _before_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        running = self._running
        if not self._lane.hold_writes():
            if running is not None:
                running.spoil()
            return
        self._stepped.add(id(optimizer))
        if running is not None:
            running.check()

    def _finished(self, whole: bool) -> None:
        self._running = None
        self.held_up_seconds = self._lane.wait()
        if not whole:
            self._optimizers = []
            logger.warning(
                "what an optimizer owns was changed by something else while it was copied: "
                "this commit is dropped, and later ones are not copied beside the training"
            )


class _UnderWay:
    def __init__(self, copier: Copier, sources: Tensors, beside: Tensors) -> None:
        self._copier = copier
        # Nothing else may use their memory before the copy is complete.
        self._sources = sources
        self._beside = beside
        self._versions = [source._version for source in beside]
        self._whole = True
        self._checked = False

    def check(self) -> None:
        """Called before an optimizer writes: any earlier write came from something else."""
        if not self._checked:
            self._checked = True
            self._whole = self._whole and self._versions == [
                source._version for source in self._beside
            ]

    def spoil(self) -> None:
        """Called when an optimizer will write without waiting."""
        self._whole = self._whole and not self._beside

    def done(self) -> bool:
        return self._copier._lane.done()

    def finish(self) -> bool:
        self.check()
        self._copier._finished(self._whole)
        return self._whole
