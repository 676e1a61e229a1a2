"""How one batch of the whole group is cut into micro-batches and dealt out to the ranks. Pure; no torch.

Positions are those of samples in an epoch's order. All ranks get the same number of micro-batches, since each may mean a
collective; a rank that would get fewer computes one again that counts for nothing.
"""

from typing import NamedTuple


class MicroBatch(NamedTuple):
    """The samples from `begin` up to `end` of an epoch's order.

    Attributes:
        counts: whether it adds to the gradient; it doesn't where there was nothing left to do for a rank.
    """

    begin: int
    end: int
    counts: bool

    @property
    def samples(self) -> int:
        """How many of its samples count."""
        return self.end - self.begin if self.counts else 0


def share_of_batch(
    begin: int, end: int, *, rank: int, world_size: int, micro_batch_size: int | None, full_batch: int
) -> list[MicroBatch]:
    """A rank's part of a batch, in order: at least one micro-batch, and as many as any other rank has.

    Args:
        begin: where the batch begins in the epoch's order.
        end: where it ends; beyond `begin`.
        rank: whose share.
        world_size: how many share.
        micro_batch_size: samples of each but the batch's last one; they are the same for any world size then. None: each rank
            computes an even share of the batch at once.
        full_batch: samples of a batch that is not the epoch's last one. Where each rank has two of them at least, none gets a
            single one of a shorter batch either, if that has two: a batch norm refuses to learn from one sample.
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
    # In front: the last one, after which the ranks meet, counts for all of them where it can.
    return [MicroBatch(begin, min(begin + micro_batch_size, end), counts=False)] * (each - len(mine)) + mine


def parts_each(batch_samples: int, *, world_size: int, micro_batch_size: int | None) -> int:
    """How many micro-batches each rank gets of a batch."""
    pieces = 1 if micro_batch_size is None else -(-batch_samples // micro_batch_size)
    return -(-pieces // world_size)


def _even_share(count: int, rank: int, world_size: int) -> range:
    return range(count * rank // world_size, count * (rank + 1) // world_size)


def weight_of(part: MicroBatch, *, batch_samples: int, world_size: int) -> float:
    """What a micro-batch's mean loss is multiplied by, so that the ranks' average of the sums is the mean over the batch."""
    return part.samples * world_size / batch_samples
