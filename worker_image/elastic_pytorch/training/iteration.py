"""Checks that a loop takes the batches that its sampler gives, each once and in order. No torch."""

import threading

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
