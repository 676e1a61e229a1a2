"""Deals the shards that are left to the ranks, and to the workers that read for each.

Pure; no torch.

All ranks know the place, so each knows what every other one reads, and nothing is sent.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from elastic_pytorch.training.streams.place import Change


class Position(NamedTuple):
    """How far a lane has come.

    Attributes:
        done: the number of its shards that have ended.
        taken: the samples that are taken of the next one, from its beginning on.
    """

    done: int
    taken: int


class Deal(NamedTuple):
    """Who reads what. The shards of one worker, which it reads one after the other, are a lane.

    Attributes:
        items: the shards that are left, and the samples taken of each.
        readers: how many data-parallel ranks read.
        workers: how many workers each of them has.
    """

    items: Sequence[tuple[int, int]]
    readers: int
    workers: int

    def lane(self, rank: int, worker: int) -> Sequence[tuple[int, int]]:
        """Returns the shards of a lane.

        Neighbours go to different ranks, so that all of them have some as long as possible.
        """
        if rank >= self.readers:
            return ()
        return self.items[worker * self.readers + rank :: self.readers * self.workers]

    def begin(self, rank: int) -> list[Position]:
        lanes = (self.lane(rank, worker) for worker in range(self.workers))
        return [Position(0, lane[0][1] if lane else 0) for lane in lanes]

    def changes(
        self, rank: int, before: Sequence[Position], after: Sequence[Position]
    ) -> Iterator[Change]:
        """Yields what has changed when a rank's lanes have come from one position to another."""
        for worker, (old, new) in enumerate(zip(before, after, strict=True)):
            if old == new:
                continue
            lane = self.lane(rank, worker)
            for shard, _ in lane[old.done : new.done]:
                yield Change(shard, None)
            if new.done < len(lane):
                yield Change(lane[new.done][0], new.taken)


def share(batch_size: int, rank: int, readers: int) -> int:
    """Returns a rank's samples of a step; 0: it does not read."""
    return (
        batch_size * (rank + 1) // readers - batch_size * rank // readers if rank < readers else 0
    )


def deals_again(counts: Sequence[int], left: int, readers: int) -> bool:
    """Whether dealing again would give shards to a rank that has none.

    Args:
        counts: the samples that each rank has for the next step.
        left: the number of shards that are not done.
        readers: how many ranks read.
    """
    busy = sum(count > 0 for count in counts)
    return 0 < busy < min(readers, left)
