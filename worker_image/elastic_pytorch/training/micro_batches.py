"""Splits one batch of the whole group into micro-batches for the ranks. No torch.

Positions are those of samples in an epoch's order. All ranks get the same number of micro-batches,
since each may mean a collective; a rank that would get fewer repeats one that does not count.
"""

from collections.abc import Callable
from functools import lru_cache
from math import ceil
from typing import NamedTuple


class MicroBatch(NamedTuple):
    """The samples from `begin` up to `end`, uncounted if nothing was left for the rank."""

    begin: int
    end: int
    counts: bool

    @property
    def samples(self) -> int:
        return self.end - self.begin if self.counts else 0


class Cut(NamedTuple):
    """How a batch is cut: into pieces of `micro_batch_size`, or else evenly into `shares`.

    `full_batch` is the size of a batch that the epoch's end does not shorten. If its shares have
    two samples each, so have those of a shorter batch, as a batch norm refuses to learn from one.
    """

    micro_batch_size: int | None
    shares: int
    full_batch: int

    def pieces(self, begin: int, end: int) -> list[tuple[int, int]]:
        if self.micro_batch_size is not None:
            size = self.micro_batch_size
            return [(first, min(first + size, end)) for first in range(begin, end, size)]
        least = 2 if self.full_batch >= 2 * self.shares else 1
        sharing = min(self.shares, max(1, (end - begin) // least))
        shares = [even_share(end - begin, each, sharing) for each in range(sharing)]
        return [(begin + share.start, begin + share.stop) for share in shares]


def shares_within(full_batch: int, *, world_size: int, largest: int) -> int:
    """Returns how many shares keep each within a rank's share in the largest group.

    All ranks have the same number, since a rank with one more would delay the others. With fewer
    than two samples for each share, the batch is cut as for the largest group.
    """
    share, limit = ceil(full_batch / world_size), ceil(full_batch / largest)
    shares = world_size * ceil(share / limit)
    return shares if full_batch >= 2 * shares else largest


@lru_cache(maxsize=16)  # of steps that a loop computes or a loader reads ahead
def share_of_batch(
    begin: int, end: int, cut: Cut, *, rank: int, world_size: int
) -> tuple[MicroBatch, ...]:
    pieces = cut.pieces(begin, end)
    few = len(pieces) <= world_size  # then the first ranks have one each
    mine = (
        pieces[rank : rank + 1]
        if few
        else [pieces[number] for number in even_share(len(pieces), rank, world_size)]
    )
    idle = MicroBatch(*pieces[0], counts=False)
    # In front, so that the last one, after which the ranks synchronise, counts if possible.
    return (
        *[idle] * (-(-len(pieces) // world_size) - len(mine)),
        *(MicroBatch(*piece, counts=True) for piece in mine),
    )


def parts_each(batch_samples: int, cut: Cut, *, world_size: int) -> int:
    return -(-len(cut.pieces(0, batch_samples)) // world_size)


def even_share(count: int, rank: int, world_size: int) -> range:
    return range(count * rank // world_size, count * (rank + 1) // world_size)


class StepShare(NamedTuple):
    """A rank's share of a step."""

    samples: list[int]  # that count, in each micro-batch
    batch_samples: int  # of all ranks
    ranks: int

    def weight_of(self, samples: int) -> float:
        """Returns the factor of a micro-batch's mean loss, for averaged sums."""
        return samples * self.ranks / self.batch_samples


class Part:
    """The current micro-batch.

    Attributes:
        last: whether the optimizer's step comes after it.
        samples: its samples that count; 0 if this rank computes it only for the collectives.
        parts: the micro-batches of the step on each rank.
    """

    def __init__(self, weight: float, *, last: bool, samples: int, parts: int) -> None:
        self._weight = weight
        self.last, self.samples, self.parts = last, samples, parts
        self.weight_used = False
        # Runs when the loss is weighted; may raise a RuntimeError.
        self.check: Callable[[], None] | None = None

    @property
    def weight(self) -> float:
        """The factor for its mean loss."""
        self.use_weight()
        return self._weight

    def use_weight(self) -> None:
        if self.check is not None:
            self.check()
        self.weight_used = True
