"""The training loop: a turn is a step of the optimizer."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from elastic_pytorch.state.state import State
from elastic_pytorch.state.step_boundary import turns
from elastic_pytorch.state.values.rng_state import mixed
from elastic_pytorch.training.counted_loss import CountedStep
from elastic_pytorch.training.iteration import Epochs
from elastic_pytorch.training.loaders import sampler_of, stream_of
from elastic_pytorch.training.micro_batches import Part
from elastic_pytorch.training.sampler import ElasticSampler
from elastic_pytorch.training.step import NOT_GONE_THROUGH, Step
from elastic_pytorch.training.streams.stream import ElasticStream
from elastic_pytorch.training.work_timer import WorkTimer

END = 2**62
# Marks that schedulers of torch, also of older releases, leave on an optimizer's `step`.
SCHEDULED = ("_wrapped_by_lr_sched", "_with_counter")
NOT_STEPPED = (
    "an optimizer of the model has taken no step in this turn, and each turn of `steps` is one: "
    "call optimizer.step() after the loop over step.parts. With a GradScaler, "
    "call scaler.step and scaler.update, and register it with the State. To leave a step out, "
    "ask on all ranks: `if step.skip(when): continue`. To add up the gradients of several batches, "
    "make batch_size larger, with a micro_batch_size"
)
NOT_CLEARED = (
    "the gradients of the step before are still there, and would be part of this one: "
    "call optimizer.zero_grad() before the loop over step.parts, or after optimizer.step()"
)


def epochs(state: State, count: int) -> Iterator[int]:
    """Yields the epochs up to `count`, from the current one, which may have begun before a restart.

    An epoch that the inner loop leaves early comes again, for its rest.

    Args:
        state: with which the loader's ElasticSampler or ElasticStream is registered.
        count: the epochs after which to end.

    Raises:
        RuntimeError: not one of these is registered, or a whole epoch has passed without a step.
    """
    samplers = state._objects_of(Epochs)
    if len(samplers) != 1:
        raise RuntimeError(
            f"{len(samplers)} samplers and streams are registered with the State: "
            "epochs are those of one. Register the loader's ElasticSampler or ElasticStream; "
            "of several, go through the epochs of the one that counts them, with its own `epochs`"
        )
    looped: Epochs = samplers[0]
    return looped.epochs(count)


def steps(
    state: State,
    loader: Iterable[Any],
    model: torch.nn.Module,
    *,
    epochs: int | None = None,
    max_steps: int | None = None,
) -> Iterator[Step]:
    """Yields the steps of the training; each group calls it after `State.restore`.

        for step in elastic.steps(state, loader, model, max_steps=5000):
            optimizer.zero_grad()
            for inputs, targets in step.parts:
                step.backward(loss_of(model(inputs), targets))
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()

    In a loop over `elastic.epochs`, it ends with the epoch. With `epochs` or `max_steps`, it is
    both loops in one.

    Each registered optimizer of the model takes one step in each turn. The loop may be left after
    that, and continued by another call. Its last step is committed by that call, by `State.flush`
    or `State.close`, or at the end of a process that no exception ends.

    Args:
        state: the State with which the model, its optimizers, their schedulers, the scaler, and the
            loader's sampler or stream are registered.
        loader: a DataLoader whose batch_sampler is an ElasticSampler; or a StreamLoader.
        model: the model that computes the loss, wrapped in DistributedDataParallel, or sharded by
            fully_shard.
        epochs: the number of epochs after which to end.
        max_steps: the step after which to end.

    Raises:
        TypeError: the loader has no ElasticSampler, and is no StreamLoader.
        ValueError: there is no end, or one besides that of the loop over `elastic.epochs`.
        RuntimeError: something is not registered, the model does not fit the ranks or the sampler,
            or a turn is not one step.
    """
    sampler = stream_of(loader) or sampler_of(loader)
    if (epochs is None and max_steps is None) != (sampler._in_epoch is not None):
        raise ValueError(
            "say once when to end: by a loop over elastic.epochs around this one, "
            "which is left by `break`; or by epochs=, max_steps= or both"
        )
    optimizers = _optimizers_of(state, model)
    _refuse_unregistered(state, model, sampler, optimizers)
    ranks = sampler.data_parallel
    ranks.check(model)
    if isinstance(sampler, ElasticSampler):
        sampler.trains(next((each.device.type for each in model.parameters()), "cpu"))
    alone = ranks.place()[1] == 1
    if (
        not alone
        and not hasattr(model, "no_sync")
        and not hasattr(model, "set_requires_gradient_sync")
    ):
        raise RuntimeError(
            "the model is neither in DistributedDataParallel nor sharded by fully_shard: "
            "each rank would learn by itself"
        )
    # Ranks that share a model wait for each other in forward, too: no part is a rank's own work.
    timer = (
        WorkTimer()
        if isinstance(model, DistributedDataParallel) and not alone and ranks.mesh is None
        else None
    )
    scaler = next(
        (each for each in state._objects_of(torch.amp.GradScaler) if each.is_enabled()), None
    )
    if max_steps is not None:
        state._expect_end(max_steps)
    loop = Loop(state, sampler, model, optimizers, scaler, timer)
    return loop.run(
        loader, END if epochs is None else epochs, END if max_steps is None else max_steps
    )


def _optimizers_of(state: State, model: torch.nn.Module) -> list[Optimizer]:
    parameters = set(map(id, model.parameters()))
    return [
        each
        for each in state._objects_of(Optimizer)
        if any(id(one) in parameters for group in each.param_groups for one in group["params"])
    ]


def _refuse_unregistered(
    state: State, model: torch.nn.Module, sampler: object, optimizers: list[Optimizer]
) -> None:
    missing = [
        name
        for name, each in (("model", model), ("loader's sampler", sampler))
        if not state._holds(each)
    ]
    missing += [] if optimizers else ["optimizer of the model"]
    # Any other object with a `step` may be a scheduler of the script, with torch's in it.
    kinds = (torch.nn.Module, Optimizer, torch.amp.GradScaler)
    has_schedulers = any(
        hasattr(each, "step") and not isinstance(each, kinds) for each in state._objects_of(object)
    )
    scheduled = any(hasattr(each.step, mark) for each in optimizers for mark in SCHEDULED)
    missing += ["scheduler of the optimizer"] if scheduled and not has_schedulers else []
    if missing:
        raise RuntimeError(
            f"not registered with the State: the {', the '.join(missing)}. "
            "A new group would begin with fresh ones"
        )
    if getattr(state, "has_stages", False):
        raise RuntimeError(
            "the model is a stage of a pipeline: its backward pass takes a schedule, "
            "and the loss only the last stage. Write the loop with sampler.part, "
            "in which all ranks read part.weight"
        )


@dataclass(slots=True)
class Loop:
    state: State
    sampler: ElasticSampler | ElasticStream
    model: torch.nn.Module
    optimizers: list[Optimizer]
    scaler: Any
    timer: WorkTimer | None
    step: Step | None = None  # whose turn it is
    stepped: list[Optimizer] = field(default_factory=list)
    forwarded: bool = False  # whether the model has run since the part was taken
    counted: CountedStep | None = None
    losses: list[tuple[Any, Tensor]] = field(default_factory=list)  # of parts: count and mean
    scale: Tensor | None = None  # of the losses

    def run(self, loader: Iterable[Any], epochs: int, max_steps: int) -> Iterator[Step]:
        turns.complete()  # of a loop that was left
        for optimizer in self.optimizers:
            optimizer.zero_grad()  # of a loop that was left within a step
        around = self.sampler._in_epoch  # of a loop over `epochs`
        with self._watched():
            for epoch in (
                self.sampler.epochs(epochs)
                if around is None
                else range(self.sampler.epoch, around + 1)
            ):
                if self.state.step >= max_steps:
                    return
                with torch.random.fork_rng([]):
                    # A DataLoader draws a seed, and draws it again for the rest of an epoch.
                    seed = mixed(torch.initial_seed(), epoch, self.state.step)
                    torch.default_generator.manual_seed(seed)
                    batches = iter(loader)
                iteration = None
                for batch in batches:
                    if (newest := self.sampler._iteration) is not None:
                        # The body may have begun another one, to look at a batch.
                        iteration = iteration or newest
                        self.sampler._iteration = iteration
                    yield from self._turn(Step(self, chain((batch,), batches), epoch=epoch))
                    is_last = (
                        self.sampler.finished if around is None else self.sampler.epoch > around
                    )
                    if is_last or self.state.step >= max_steps:
                        return  # what follows the loop belongs to its last step
                    self.state._complete_step()
                if self.sampler.epoch == epoch:
                    self._refuse_end()

    def _turn(self, step: Step) -> Iterator[Step]:
        self.step, self.counted, self.scale = step, None, None
        self.stepped, self.losses = [], []
        try:
            yield step
        finally:
            self.step = None
        if (
            self.state.step < step.number
            and self.scale is not None
            and self.scaler.get_scale() < self.scale.item()
        ):
            self.count()  # the scaler has found infinite gradients, and left the step out
        if self.state.step < step.number:
            raise RuntimeError(NOT_STEPPED if step._all_done else NOT_GONE_THROUGH)

    def parts(self, step: Step, batches: Iterator[Any]) -> Iterator[Any]:
        if self.sampler._gradients.still_there():
            raise RuntimeError(NOT_CLEARED)
        self.sampler._gradients.note()
        for batch in batches:
            with self.sampler.part(self.model) as part:
                step._part, step._waits, self.forwarded = part, True, False
                yield batch
                if step._waits:
                    raise RuntimeError(
                        "step.backward(loss) was not called for this part: "
                        "write it instead of loss.backward(), as each part belongs to a step of "
                        "all ranks"
                    )
                self.sampler._gradients.check()
            if part.last:
                step._all_done = True
                return
        self._refuse_end()

    def _refuse_end(self) -> NoReturn:
        left = (
            f"{self.sampler.batches_left} batches"
            if isinstance(self.sampler, ElasticSampler)
            else "samples"
        )
        raise RuntimeError(
            f"the loader has ended, and {left} of epoch {self.sampler.epoch} are left"
        )

    def backward(self, part: Part, loss: Tensor, count: Tensor | float | None) -> None:
        if isinstance(self.model, DistributedDataParallel) and not self.forwarded:
            raise RuntimeError(
                "the loss was not computed with the model that steps was given: "
                "its gradients would stay on this rank"
            )
        self.sampler._gradients.check(self._parameters())
        mean = loss.detach()
        if self.scaler is not None:
            self.scale = (
                self.scaler.scale(torch.ones_like(mean)) if self.scale is None else self.scale
            )
            mean = mean / self.scale
        weighted: Any
        if count is None and self.counted is None:
            weighted = part.weight * loss
            if part.samples:
                self.losses.append((part.samples, mean))
        else:
            weighted = self._counted_loss(part, loss, mean, count)
        if self.timer is not None:
            self.timer.watch(weighted)
        weighted.backward()
        if part.last and self.counted is not None:
            self.counted.correct(each.grad for each in self._parameters() if each.grad is not None)
        self.sampler._gradients.note(self._parameters())

    def _counted_loss(
        self, part: Part, loss: Tensor, mean: Tensor, count: Tensor | float | None
    ) -> Tensor:
        if count is None or (self.counted is None and self.losses):
            raise RuntimeError("count is given for all parts of a step or for none")
        if self.counted is None:
            self.counted = CountedStep(part.parts, self.sampler.data_parallel)
        count = count if part.samples else 0
        counts = (
            torch.as_tensor(count, device=loss.device)
            .detach()
            .to(torch.promote_types(loss.dtype, torch.float32))
        )
        # A mean over nothing is nan.
        loss, mean = (
            torch.where(counts > 0, each, torch.zeros_like(each)) for each in (loss, mean)
        )
        self.losses.append((counts, mean))
        part.use_weight()  # the count replaces it
        return self.counted.weight(counts) * loss

    def count(self) -> None:
        """Counts the step; the rest of this turn still belongs to it."""
        self.state._end_step(loss=mean_loss(self.losses))
        self.sampler._gradients.note(self._parameters())
        if self.timer is not None:
            self.timer.end_step()

    def _parameters(self) -> Iterator[Tensor]:
        return (
            each
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for each in group["params"]
        )

    def _watched(self) -> ExitStack:
        watches = ExitStack()
        for optimizer in self.optimizers:
            watches.enter_context(optimizer.register_step_pre_hook(self._before_step))
            watches.enter_context(optimizer.register_step_post_hook(self._after_step))
        if isinstance(self.model, DistributedDataParallel):
            watches.enter_context(self.model.register_forward_pre_hook(self._note_forward))
        return watches

    def _before_step(self, optimizer: Optimizer, *_: object) -> None:
        if self.step is None or not self.step._all_done:
            raise RuntimeError(NOT_GONE_THROUGH)
        if self.step._skipped:
            raise RuntimeError(
                "this step is left out, as step.skip has said: go on to the next turn"
            )
        if optimizer in self.stepped:
            raise RuntimeError(
                "the optimizer has taken a step in this turn already, "
                "and each turn of `steps` is one: leave the second one out"
            )

    def _after_step(self, optimizer: Optimizer, *_: object) -> None:
        self.stepped.append(optimizer)
        if len(self.stepped) == len(self.optimizers):
            self.count()

    def _note_forward(self, *_: object) -> None:
        self.forwarded = True


def mean_loss(losses: Sequence[tuple[Any, Tensor]]) -> Any:
    """Returns the mean loss; None: this rank had no samples; nan: it had no tokens."""
    if len(losses) == 1 and isinstance(losses[0][0], int):
        return losses[0][1]  # saves three kernels on a GPU
    if losses:
        return sum(count * loss for count, loss in losses) / sum(count for count, _ in losses)
    return None
