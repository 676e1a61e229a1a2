"""How a loop goes through epochs, with each batch once and in order."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from elastic_pytorch.state.step_boundary import turns
from elastic_pytorch.state.values.rng_state import mixed, seed_all
from elastic_pytorch.training.micro_batches import Part, StepShare
from elastic_pytorch.training.step import StepGradients, reduction

ORDER_LOST = (
    "the loop does not take each batch that ElasticSampler gives: {what}. "
    "Either something deals the batches out to the ranks a second time (Accelerate's prepare, "
    "Lightning without use_distributed_sampler=False, the Trainer of transformers): "
    "give the loop its loader as it was made. Or a batch was passed over without its part, "
    "or the loop has begun another iterator of its loader"
)
LOADED_MEANWHILE = (
    "another place in the data was loaded while this iterator was in use, "
    "or another iterator of a stream begun: make a new one"
)
WEIGHT_UNUSED = (
    "the weight of a part was not used: go backward from part.weight * loss. "
    "Otherwise the gradient of a batch that is not shared out evenly is wrong; "
    "with even shares the weight is 1 and does no harm"
)


class Iteration:
    """Compares the batches that a sampler has given to a loader with those that the loop has used.

    A loader may read ahead any distance, but takes one batch for each that it hands on. So its lead
    when the first one is used can shrink but not grow. Before that, `begin` is called.
    """

    def __init__(self, loads: int, begin: Callable[[], None] | None = None) -> None:
        self._loads, self._begin = loads, begin
        self._given = 0
        self._used = 0
        self._most_ahead: int | None = None
        self._thread = 0

    def give(self, loads: int) -> None:
        """Raises a RuntimeError if another place was loaded since the iteration began."""
        if loads != self._loads:
            raise RuntimeError(LOADED_MEANWHILE)
        self._given += 1
        self._thread = threading.get_ident()

    def check(self) -> None:
        """Raises a RuntimeError if a loader cannot have handed on the next batch."""
        if self._most_ahead is None and self._begin is not None:
            self._begin()
        number = self._used + 1
        ahead = self._given - number
        if ahead < 0:
            what = f"it uses number {number}, of {self._given} given"
            raise RuntimeError(ORDER_LOST.format(what=what))
        if self._most_ahead is None:
            self._most_ahead = ahead
        # Another thread may read ahead unevenly.
        elif ahead > self._most_ahead and self._thread == threading.get_ident():
            handed_on = self._given - self._most_ahead
            what = f"it uses number {number}, of {handed_on} handed on"
            raise RuntimeError(ORDER_LOST.format(what=what))

    def use(self) -> None:
        self._used += 1


class Epochs(ABC):
    """The epochs of a training and the steps in them, from the committed place.

    Attributes:
        epoch: the current one, from 0.
    """

    epoch: int = 0
    micro_batch_size: int | None
    _seed_random: bool
    _in_epoch: int | None = None  # the one whose body a loop over `epochs` runs
    _epoch_is_over = False  # but its loop has yet to go on
    _epochs: int | None = None  # after which training ends
    _called: str  # in messages
    _loop: object = None  # the newest one over `epochs`
    _iteration: Iteration | None = None  # the newest one of a loader
    _micro = 0  # the step's next micro-batch
    _loads = 0  # of places; an iteration goes on only without another

    def __init__(self) -> None:
        self._gradients = StepGradients()

    def _begin_step(self) -> None:
        self._micro = 0
        self._gradients.forget()

    @property
    @abstractmethod
    def _reached(self) -> int:
        """A number that differs after each step of an epoch."""

    @abstractmethod
    def _share_of_step(self) -> StepShare:
        """Raises a RuntimeError if no batch was taken."""

    @abstractmethod
    def _numbers_of_part(self) -> tuple[int, ...]:
        """Returns what a micro-batch's random numbers depend on."""

    @abstractmethod
    def _pass_step(self) -> bool:
        """Moves on by the current step; returns whether that ends its epoch."""

    def advance(self) -> None:
        """Advances by a batch of the whole group, and after the last one to the next epoch.

        Raises:
            RuntimeError: no batch was taken, or micro-batches of the step are still to come.
        """
        parts = len(self._share_of_step().samples)
        if self._micro < parts and (self._micro or self._iteration is not None):
            raise RuntimeError(
                f"the step has {parts} micro-batches, and only {self._micro} are done: "
                "compute each in a part"
            )
        self._epoch_is_over = self._pass_step() and (self._in_epoch is not None or self._micro > 0)
        self._begin_step()

    @contextmanager
    def part(self, model: Any = None) -> Iterator[Part]:
        """Enters the current micro-batch for forward and backward, without the optimizer's step.

        Args:
            model: a model in DistributedDataParallel, or sharded by fully_shard, whose gradients
                are reduced only in the step's last micro-batch.

        Raises:
            RuntimeError: no batch was taken, or the step before is not committed; batches are left
                out or come in another order; the weight was not used; or other code has changed
                the gradients of the step.
        """
        turns.complete()
        share = self._share_of_step()
        if self._micro >= len(share.samples):
            raise RuntimeError(
                "the step before is done but not committed: call State.commit, "
                f"or advance of the {self._called}, after each"
            )
        if self._iteration is not None:
            self._iteration.check()
        if self._seed_random:
            seed_all(mixed(*self._numbers_of_part()))
        samples, last = share.samples[self._micro], self._micro == len(share.samples) - 1
        part = Part(share.weight_of(samples), last=last, samples=samples, parts=len(share.samples))
        if self._micro:
            part.check = self._gradients.check
        # Where micro-batches save memory, gradients must not wait unsharded.
        reduce = last or (self.micro_batch_size is None and hasattr(model, "unshard"))
        with reduction(model, reduce):
            yield part
        if not last and hasattr(model, "parameters"):
            self._gradients.note(model.parameters())
        if not part.weight_used:
            raise RuntimeError(WEIGHT_UNUSED)
        self._micro += 1
        if self._iteration is not None:
            self._iteration.use()

    @property
    def finished(self) -> bool:
        """Whether `advance` has ended the last of all epochs that were requested of `epochs`."""
        return self._epochs is not None and self.epoch >= self._epochs

    def epochs(self, count: int) -> Iterator[int]:
        """Yields the epochs as `elastic_pytorch.epochs` does, without a State.

        Raises:
            RuntimeError: a whole epoch has passed, and `advance` was not called.
        """
        self._epochs, self._loop = count, (this := object())
        while self.epoch < count:
            place = self.epoch, self._reached
            self._in_epoch = self.epoch
            try:
                yield self.epoch
            finally:
                # A loop that an exception has ended may be closed while another one runs.
                if self._loop is this:
                    self._in_epoch = None
            turns.complete()
            if place == (self.epoch, self._reached):
                raise RuntimeError(
                    "no step of this epoch was committed: call State.commit, "
                    f"or advance of the {self._called}, after each"
                )


def refuse_another(state: Mapping[str, Any], meaning: Mapping[str, Any], what: str) -> None:
    different = [
        f"{name} was {state.get(name)} and is {value} now"
        for name, value in meaning.items()
        if state.get(name) != value
    ]
    if different:
        raise ValueError(
            f"{what}: {'; '.join(different)}. Give what it was, or begin in another folder"
        )
