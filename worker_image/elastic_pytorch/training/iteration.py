"""Whether a loop takes the batches that its sampler gives, each once and in order. No torch."""

import threading

ORDER_LOST = (
    "the loop does not take each batch that ElasticSampler gives: {what}. Either something deals the batches out to the ranks a second "
    "time (Accelerate's prepare, Lightning without use_distributed_sampler=False, the Trainer of transformers): give the loop its loader "
    "as it was made. Or a batch was passed over without its part"
)


class Iteration:
    """What a sampler's iterator has given to a loader, against what the loop has come to.

    A loader may read ahead as far as it likes, but takes one batch for each that it hands on. So what it is ahead by when the first one
    is used can shrink and not grow.
    """

    def __init__(self) -> None:
        self._given = 0
        self._used = 0
        self._most_ahead: int | None = None
        self._thread = 0

    def give(self) -> None:
        """One more has been given. To be called in the thread that takes it."""
        self._given += 1
        self._thread = threading.get_ident()

    def check(self, count: int = 1) -> None:
        """Looks whether the next ones to be used can be those that a loader has handed on.

        Args:
            count: how many micro-batches are used now.

        Raises:
            RuntimeError: they cannot.
        """
        ahead = self._given - self._used - count
        if ahead < 0:
            raise RuntimeError(ORDER_LOST.format(what=f"it uses number {self._used + count}, of {self._given} given"))
        if self._most_ahead is None:
            self._most_ahead = ahead
        elif ahead > self._most_ahead and self._thread == threading.get_ident():  # a thread that reads ahead may do it unevenly
            handed_on = self._given - self._most_ahead
            raise RuntimeError(ORDER_LOST.format(what=f"it uses number {self._used + count}, of {handed_on} handed on"))

    def use(self, count: int = 1) -> None:
        """Counts micro-batches as used."""
        self._used += count
