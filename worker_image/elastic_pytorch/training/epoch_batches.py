"""Where the batches of an epoch end, as positions of samples in the epoch's order. No torch."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class EpochBatches(NamedTuple):
    """The batches of the whole group in one epoch.

    Attributes:
        samples: where the last batch ends.
        size: samples of each batch but a shorter last one; of no use if there are `ends`.
        ends: where each batch ends, if they have sizes of their own.
    """

    samples: int
    size: int
    ends: Sequence[int] | None = None

    def end(self, begin: int) -> int:
        """Returns where the batch ends that begins at `begin`."""
        return (
            min(begin + self.size, self.samples)
            if self.ends is None
            else self.ends[bisect_right(self.ends, begin)]
        )

    def left(self, begin: int) -> int:
        """Returns the number of batches from `begin` on."""
        return (
            -(-(self.samples - begin) // self.size)
            if self.ends is None
            else len(self.ends) - bisect_right(self.ends, begin)
        )

    def sizes(self, begin: int) -> Counter[int]:
        """Returns how many batches of each size there are from `begin` on."""
        if self.ends is not None:
            return Counter(
                end - start
                for start, end in pairwise((begin, *self.ends[bisect_right(self.ends, begin) :]))
            )
        full, rest = divmod(self.samples - begin, self.size)
        return Counter(
            {size: count for size, count in ((self.size, full), (rest, 1)) if size and count}
        )

    def full(self, samples: int) -> int:
        """Returns the samples that a batch has if the epoch's end does not cut it short.

        No batch is short among those with sizes of their own: one of few samples, which may be long
        ones, is for as many ranks as any other.
        """
        return min(self.size, self.samples) if self.ends is None else samples
