"""The training loop: one micro-batch at a time, and all parts of a step in their order."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from elastic_pytorch.log import logger
from elastic_pytorch.state.state import State
from elastic_pytorch.state.step_boundary import turns
from elastic_pytorch.training.counted_loss import CountedStep
from elastic_pytorch.training.data_parallel import DataParallel
from elastic_pytorch.training.loaders import sampler_of, stream_of
from elastic_pytorch.training.micro_batches import Part
from elastic_pytorch.training.sampler import ElasticSampler
from elastic_pytorch.training.streams.stream import ElasticStream
from elastic_pytorch.training.work_timer import WorkTimer

END = 2**62


class Step:
    """A micro-batch: the whole step of this rank, or with a `micro_batch_size` a part of it.

    Attributes:
        batch: what the loader yields.
        epoch: the epoch of the batch, from 0.
        samples: the number of its samples that count; 0 where this rank has nothing to do and computes only so that the collectives match.
        last: whether the optimizer's step comes after it.
        ends_epoch: whether it is the last one of its epoch.
    """

    def __init__(self, loop: "_Loop", batch: Any, part: Part, *, epoch: int, ends_epoch: bool, stack: ExitStack) -> None:
        self._loop, self._part, self._stack = loop, part, stack
        self._done = False
        self.batch = batch
        self.epoch = epoch
        self.samples = part.samples
        self.last = part.last
        self.ends_epoch = ends_epoch

    def backward(self, loss: Tensor, *, count: Tensor | float | None = None) -> None:
        """Runs backward. After a step's last micro-batch, also runs the optimizer's step, and counts the step as done.

        Left over from another loop, `zero_grad` and clipping within a step are errors, as are steps of the optimizer or the schedulers.

        Args:
            loss: the mean over the micro-batch; the library weights it, and scales it if there is a scaler.
            count: the number that the mean is over, if not samples: tokens without padding, for example. On all ranks, or on none.

        Raises:
            RuntimeError: it was called before for this micro-batch; the loss has not come through the model that `steps` was given;
                or what `State.commit` raises for the step before. Or the body has cleared or changed the gradients of the step's earlier
                micro-batches, or has stepped a scheduler that `steps` was given.
        """
        if self._done:
            raise RuntimeError("backward was called before for this micro-batch: add the losses up, and call it once")
        self._loop.backward(self._part, loss, count)
        self._done = True
        self._stack.close()
        if self.last:
            self._loop.finish_step(ends_epoch=self.ends_epoch)

    def check(self) -> None:
        """Checks that backward was called, and that the body has not taken the scheduler's step a second time.

        Raises:
            RuntimeError: it was not; or it has.
        """
        self._loop.check_schedulers()
        if not self._done:
            raise RuntimeError(
                "step.backward(loss) was not called for this micro-batch: every one is part of a step of all ranks"
            )


def steps(
    state: State,
    loader: Iterable[Any],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int | None = None,
    max_steps: int | None = None,
    scheduler: Any = None,
    epoch_scheduler: Any = None,
    scaler: Any = None,
    before_step: Callable[[], object] | None = None,
    after_step: Callable[[], object] | None = None,
) -> Iterator[Step]:
    """Runs the training loop from the step of the state. Each group calls it after `State.restore`.

        for step in elastic.steps(state, loader, model, optimizer, epochs=3):
            step.backward(loss_of(model, *step.batch))

    A step's last `backward` also runs, in this order: `before_step`, `optimizer.step`, `zero_grad`, `scheduler.step`. Then it counts the
    step, so that `state.step` has its number, and calls `after_step`. What the loop's body does next still belongs to the step:
    `State.commit` comes when the loop goes on, and a group that changes stops there. A step may have several micro-batches, and has
    on an accelerator when the group shrinks: the body runs for each of them, so what belongs to the step is for `if step.last`.

    The loop may be left after any `backward`, and continued by another call. What the script does after the loop, at the end of an epoch
    for example, belongs to the loop's last step, whether the loop has come to its end or was left. This step is committed by the next
    call, by `State.flush` or `State.close`, or at the end of the process; not if an exception ends that.

    Args:
        state: the State with which the model, the optimizer, the schedulers, the scaler and the loader's sampler or stream are registered.
        loader: a DataLoader whose batch_sampler is an ElasticSampler; or a StreamLoader.
        model: the model that computes the loss, wrapped in DistributedDataParallel, or sharded by fully_shard.
        optimizer: the optimizer of the model.
        epochs: the number of epochs after which to end.
        max_steps: the step after which to end.
        scheduler: a scheduler of the learning rate that steps with the optimizer.
        epoch_scheduler: a scheduler that steps with each epoch.
        scaler: a torch.amp.GradScaler.
        before_step: called when the step's gradients are complete, and unscaled: to clip them, for example.
        after_step: called when the step is counted: to update an averaged model, for example.

    Raises:
        TypeError: the loader has no ElasticSampler, and is no StreamLoader.
        ValueError: there is no end.
        RuntimeError: something is not registered; the batches are sharded a second time; nothing reduces the ranks' gradients. Or the
            model's mesh and the sampler's do not fit; or the model is a stage of a pipeline.
    """
    if epochs is None and max_steps is None:
        raise ValueError("say when to end: epochs=, or max_steps=, or both")
    sampler = stream_of(loader) or sampler_of(loader)
    needed = {"model": model, "optimizer": optimizer, "loader's sampler": sampler}
    needed |= {"scheduler": scheduler, "epoch_scheduler": epoch_scheduler, "scaler": scaler}
    missing = [name for name, each in needed.items() if each is not None and not state.holds(each)]
    if missing:
        raise RuntimeError(
            f"not registered with the State: the {', the '.join(missing)}. A new group would begin with fresh ones"
        )
    if getattr(state, "has_stages", False):
        raise RuntimeError(
            "the model is a stage of a pipeline: its backward pass takes a schedule, and the loss only the last stage. Write the loop with "
            "sampler.part, in which all ranks read part.weight"
        )
    ranks = sampler.data_parallel
    ranks.check(model)
    if isinstance(sampler, ElasticSampler):
        sampler.trains(next((each.device.type for each in model.parameters()), "cpu"))
    alone = ranks.place()[1] == 1
    if not alone and not hasattr(model, "no_sync") and not hasattr(model, "set_requires_gradient_sync"):
        raise RuntimeError(
            "the model is neither in DistributedDataParallel nor sharded by fully_shard: each rank would learn by itself"
        )
    # Ranks that share a model wait for each other in forward, too, so that no one part of a step is a rank's own.
    timer = WorkTimer() if isinstance(model, DistributedDataParallel) and not alone and ranks.mesh is None else None
    if max_steps is not None:
        state.expect_end(max_steps)
    loop = _Loop(state, model, optimizer, scheduler, epoch_scheduler, scaler, before_step, after_step, timer, ranks)
    return loop.run(loader, sampler, END if epochs is None else epochs, END if max_steps is None else max_steps)


@dataclass(slots=True)
class _Loop:
    state: State
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any
    epoch_scheduler: Any
    scaler: Any
    before_step: Callable[[], object] | None
    after_step: Callable[[], object] | None
    timer: WorkTimer | None
    ranks: DataParallel
    forwarded: bool = False  # whether the model has run since the micro-batch was taken
    counted: CountedStep | None = None  # of the current step
    losses: list[tuple[Any, Tensor]] = field(default_factory=list)  # of the current step: the count and the mean of each
    told_parts: bool = False  # whether the log says that a step has several micro-batches
    stepping: bool = False  # whether this loop takes the optimizer's step
    scheduled: list[int] = field(default_factory=list)  # how far the schedulers were after the loop's last step

    def run(
        self, loader: Iterable[Any], sampler: ElasticSampler | ElasticStream, epochs: int, max_steps: int
    ) -> Iterator[Step]:
        turns.complete()  # after which a loop was left
        self.optimizer.zero_grad()  # left over from a loop that was left within a step
        self.scheduled = self._schedule()
        with self._watched():
            for epoch in sampler.epochs(epochs):
                if self.state.step >= max_steps:
                    return
                for batch in loader:
                    with ExitStack() as stack:
                        part = stack.enter_context(sampler.part(self.model))
                        self.forwarded = False
                        self.tell_parts(part)
                        step = Step(self, batch, part, epoch=epoch, ends_epoch=part.last and sampler.ends_epoch, stack=stack)
                        yield step
                        step.check()
                    if sampler.finished or self.state.step >= max_steps:
                        return  # what follows the loop belongs to its last step
                    self.state.complete_step()
                if sampler.epoch == epoch:
                    left = f"{sampler.batches_left} batches" if isinstance(sampler, ElasticSampler) else "samples"
                    raise RuntimeError(f"the loader has ended, and {left} of epoch {epoch} are left")

    def backward(self, part: Part, loss: Tensor, count: Tensor | float | None) -> None:
        if isinstance(self.model, DistributedDataParallel) and not self.forwarded:
            raise RuntimeError(
                "the loss was not computed with the model that steps was given: its gradients would stay on this rank"
            )
        weighted: Any
        if count is None and self.counted is None:
            weighted = part.weight * loss
            if part.samples:
                self.losses.append((part.samples, loss.detach()))
        else:
            weighted = self._counted_loss(part, loss, count)
        if self.scaler is not None:
            weighted = self.scaler.scale(weighted)
        if self.timer is not None:
            self.timer.watch(weighted)
        weighted.backward()

    def finish_step(self, *, ends_epoch: bool) -> None:
        optimizer = self.optimizer
        self.check_schedulers()
        if self.counted is not None:
            self.counted.correct(p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None)
        if self.before_step is not None:
            if self.scaler is not None:
                self.scaler.unscale_(optimizer)
            self.before_step()
        self.stepping = True
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()
        self.stepping = False
        optimizer.zero_grad()
        if self.scheduler is not None:
            self.scheduler.step()
        if self.epoch_scheduler is not None and ends_epoch:
            self.epoch_scheduler.step()
        self.scheduled = self._schedule()
        losses, self.losses, self.counted = self.losses, [], None
        self.state.end_step(loss=_mean(losses))
        if self.after_step is not None:
            self.after_step()
        if self.timer is not None:
            self.timer.end_step()

    def _counted_loss(self, part: Part, loss: Tensor, count: Tensor | float | None) -> Tensor:
        if count is None or (self.counted is None and self.losses):
            raise RuntimeError("count is given for all micro-batches of a step or for none")
        if self.counted is None:
            self.counted = CountedStep(part.parts, self.ranks)
        count = count if part.samples else 0
        counts = torch.as_tensor(count, device=loss.device).detach().to(torch.promote_types(loss.dtype, torch.float32))
        loss = torch.where(counts > 0, loss, torch.zeros_like(loss))  # a mean over nothing is nan
        self.losses.append((counts, loss.detach()))
        part.use_weight()  # in whose place the count is
        return self.counted.weight(counts) * loss

    def tell_parts(self, part: Part) -> None:
        """Says once that the body runs several times a step: on an accelerator, it is a smaller group that brings this about."""
        if part.parts > 1 and not self.told_parts and self.ranks.place()[0] == 0:
            self.told_parts = True
            logger.info(
                "each step has %d micro-batches in this group, and the loop's body runs for each: what belongs to the step, such as a "
                "counter, averaged weights or an evaluation, goes below `if step.last`",
                part.parts,
            )

    def check_schedulers(self) -> None:
        """Checks that nothing but this loop has stepped the schedulers that it was given.

        Raises:
            RuntimeError: something has.
        """
        if self._schedule() != self.scheduled:
            raise RuntimeError(
                "the loop's body has stepped a scheduler that `steps` steps, too: leave scheduler.step() out of the body, or leave the "
                "scheduler out of the arguments of steps"
            )

    def _schedule(self) -> list[int]:
        given = [each for each in (self.scheduler, self.epoch_scheduler) if each is not None]
        parts = [
            part for each in given for part in (each, *getattr(each, "_schedulers", ()))
        ]  # of a ChainedScheduler, which counts none
        return [each.last_epoch for each in parts if hasattr(each, "last_epoch")]

    @contextmanager
    def _watched(self) -> Iterator[None]:
        watches = [self.optimizer.register_step_pre_hook(self._check_step)]
        if isinstance(self.model, DistributedDataParallel):
            watches.append(self.model.register_forward_pre_hook(self._note_forward))
        try:
            yield
        finally:
            for watch in watches:
                watch.remove()

    def _check_step(self, *_: object) -> None:
        if not self.stepping:
            raise RuntimeError(
                "step.backward takes the optimizer's step after a step's last micro-batch: leave optimizer.step() out of the loop's body"
            )

    def _note_forward(self, *_: object) -> None:
        self.forwarded = True


def _mean(losses: list[tuple[Any, Tensor]]) -> Any:
    """Returns the mean loss; None: this rank had no samples; nan: it had no tokens."""
    if len(losses) == 1 and isinstance(losses[0][0], int):
        return losses[0][1]  # saves three kernels on a GPU
    return sum(count * loss for count, loss in losses) / sum(count for count, _ in losses) if losses else None
