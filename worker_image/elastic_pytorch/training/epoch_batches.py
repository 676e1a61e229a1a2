"""Where the batches of an epoch end in its order. No torch."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class EpochBatches(NamedTuple):
    """The batches of the whole group in one epoch."""

    samples: int  # where the last batch ends
    size: int  # of each batch but a shorter last one; unused if there are `ends`
    ends: Sequence[int] | None = None  # of the batches, if they have sizes of their own

    def end(self, begin: int) -> int:
        if self.ends is None:
            return min(begin + self.size, self.samples)
        return self.ends[bisect_right(self.ends, begin)]

    def left(self, begin: int) -> int:
        if self.ends is None:
            return -(-(self.samples - begin) // self.size)
        return len(self.ends) - bisect_right(self.ends, begin)

    def sizes(self, begin: int) -> Counter[int]:
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
        """Returns the samples that a batch would have if the epoch's end did not cut it short."""
        return min(self.size, self.samples) if self.ends is None else samples
