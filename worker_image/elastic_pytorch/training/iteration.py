"""How a loop goes through epochs: to as many as it asks for, each batch that is given once and in order."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from elastic_pytorch.state.step_boundary import turns

ORDER_LOST = (
    "the loop does not take each batch that ElasticSampler gives: {what}. Either something deals the batches out to the ranks a second "
    "time (Accelerate's prepare, Lightning without use_distributed_sampler=False, the Trainer of transformers): give the loop its loader "
    "as it was made. Or a batch was passed over without its part"
)


class Iteration:
    """Compares what a sampler's iterator has given to a loader with what the loop has used.

    A loader may read ahead any distance, but takes one batch for each that it hands on. So its lead when the first one is used can shrink
    but not grow.
    """

    def __init__(self) -> None:
        self._given = 0
        self._used = 0
        self._most_ahead: int | None = None
        self._thread = 0

    def give(self) -> None:
        """Counts a batch that has been given. To be called in the thread that takes it."""
        self._given += 1
        self._thread = threading.get_ident()

    def check(self, count: int = 1) -> None:
        """Checks that the next batches to be used can be those that a loader has handed on.

        Args:
            count: how many micro-batches are used now.

        Raises:
            RuntimeError: they cannot be.
        """
        ahead = self._given - self._used - count
        if ahead < 0:
            raise RuntimeError(ORDER_LOST.format(what=f"it uses number {self._used + count}, of {self._given} given"))
        if self._most_ahead is None:
            self._most_ahead = ahead
        elif ahead > self._most_ahead and self._thread == threading.get_ident():  # a thread may read ahead unevenly
            handed_on = self._given - self._most_ahead
            raise RuntimeError(ORDER_LOST.format(what=f"it uses number {self._used + count}, of {handed_on} handed on"))

    def use(self, count: int = 1) -> None:
        """Counts micro-batches as used."""
        self._used += count


class Epochs(ABC):
    """The epochs of a training, from the place in one that was committed.

    Attributes:
        epoch: the current one, from 0.
    """

    epoch: int = 0
    _in_epoch: int | None = None  # the one whose body a loop over `epochs` is in
    _epoch_is_over = False  # whether the last `advance` has ended an epoch, and the loop says when it goes on
    _epochs: int | None = None  # that the training asks for
    _called: str  # in messages
    _loop: object = None  # over `epochs`, the newest one

    @property
    @abstractmethod
    def _reached(self) -> int:
        """How far the current epoch has come: another number after each step."""

    @property
    def finished(self) -> bool:
        """Whether `advance` has ended the last step of all epochs that were requested of `epochs`."""
        return self._epochs is not None and self.epoch >= self._epochs

    def epochs(self, count: int) -> Iterator[int]:
        """Yields the epochs up to `count`, from the current one, which after a restart has begun already.

        What the loop's body does at the end of an epoch belongs to the epoch's last step, which is committed after it.

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
                if self._loop is this:  # one that an exception has ended may be closed while another one is under way
                    self._in_epoch = None
            turns.complete()
            if place == (self.epoch, self._reached):
                raise RuntimeError(
                    f"no step of this epoch was committed: call State.commit, or advance of the {self._called}, after each"
                )


def refuse_another(state: Mapping[str, Any], meaning: Mapping[str, Any], what: str) -> None:
    """Makes sure that a saved place has the meaning that it had when it was saved.

    Args:
        state: that was saved.
        meaning: the settings that the place depends on, as they are now, by name.
        what: the place is of another, if they differ; in words.

    Raises:
        ValueError: they do.
    """
    different = [
        f"{name} was {state.get(name)} and is {value} now" for name, value in meaning.items() if state.get(name) != value
    ]
    if different:
        raise ValueError(f"{what}: {'; '.join(different)}. Give what it was, or begin in another folder")
