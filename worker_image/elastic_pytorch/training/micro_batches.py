"""Splits one batch of the whole group into micro-batches for the ranks. Pure; no torch.

Positions are those of samples in an epoch's order. All ranks get the same number of micro-batches, since each may mean a
collective; a rank that would get fewer repeats one that does not count.
"""

from typing import NamedTuple


class MicroBatch(NamedTuple):
    """The samples from `begin` up to `end` of an epoch's order.

    Attributes:
        counts: whether it adds to the gradient; it does not if nothing was left for the rank.
    """

    begin: int
    end: int
    counts: bool

    @property
    def samples(self) -> int:
        """The number of its samples that count."""
        return self.end - self.begin if self.counts else 0


def share_of_batch(
    begin: int, end: int, *, rank: int, world_size: int, micro_batch_size: int | None, full_batch: int
) -> list[MicroBatch]:
    """Returns a rank's part of a batch, in order: at least one micro-batch, and the same number as any other rank.

    Args:
        begin: where the batch begins in the epoch's order.
        end: where it ends; beyond `begin`.
        rank: of the share.
        world_size: the number of shares.
        micro_batch_size: samples of each but the batch's last one, so that they are the same for any world size. None: each rank
            computes an even share of the batch at once.
        full_batch: samples of a batch that is not the epoch's last one. If each rank has at least two of them, no rank gets a
            single sample of a shorter batch that has two: a batch norm refuses to learn from one sample.
    """
    if micro_batch_size is None:
        least = 2 if full_batch >= 2 * world_size else 1
        sharing = min(world_size, max(1, (end - begin) // least))
        if rank >= sharing:
            return [MicroBatch(begin, min(begin + least, end), counts=False)]
        share = _even_share(end - begin, rank, sharing)
        return [MicroBatch(begin + share.start, begin + share.stop, counts=True)]
    pieces = range(begin, end, micro_batch_size)
    mine = [
        MicroBatch(pieces[number], min(pieces[number] + micro_batch_size, end), counts=True)
        for number in _even_share(len(pieces), rank, world_size)
    ]
    each = parts_each(end - begin, world_size=world_size, micro_batch_size=micro_batch_size)
    # In front, so that the last micro-batch, after which the ranks synchronise, counts on every rank if possible.
    return [MicroBatch(begin, min(begin + micro_batch_size, end), counts=False)] * (each - len(mine)) + mine


def parts_each(batch_samples: int, *, world_size: int, micro_batch_size: int | None) -> int:
    """Returns the number of micro-batches that each rank gets of a batch."""
    pieces = 1 if micro_batch_size is None else -(-batch_samples // micro_batch_size)
    return -(-pieces // world_size)


def _even_share(count: int, rank: int, world_size: int) -> range:
    return range(count * rank // world_size, count * (rank + 1) // world_size)


def weight_of(part: MicroBatch, *, batch_samples: int, world_size: int) -> float:
    """Returns the factor of a micro-batch's mean loss that makes the ranks' average of the sums the mean over the batch."""
    return part.samples * world_size / batch_samples
