"""Deals the shards that are left to the ranks and their workers. No torch.

All ranks know the place, so each knows what every other one reads, and sends nothing.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from elastic_pytorch.training.streams.place import Change


class Position(NamedTuple):
    """Whole shards that a worker has read (`done`), and samples of the next one (`taken`)."""

    done: int
    taken: int


class Deal(NamedTuple):
    """Which worker of which rank reads which shards."""

    items: Sequence[tuple[int, int]]  # shards that are left, and the samples taken of each
    readers: int  # data-parallel ranks that read
    workers: int  # of each of them

    def of_worker(self, rank: int, worker: int) -> Sequence[tuple[int, int]]:
        """Returns the items that a worker reads one after the other.

        Neighbours go to different ranks, so that all of them have some as long as possible.
        """
        if rank >= self.readers:
            return ()
        return self.items[worker * self.readers + rank :: self.readers * self.workers]

    def begin(self, rank: int) -> list[Position]:
        workers = (self.of_worker(rank, worker) for worker in range(self.workers))
        return [Position(0, items[0][1] if items else 0) for items in workers]

    def changes(
        self, rank: int, before: Sequence[Position], after: Sequence[Position]
    ) -> Iterator[Change]:
        for worker, (old, new) in enumerate(zip(before, after, strict=True)):
            if old == new:
                continue
            items = self.of_worker(rank, worker)
            for shard, _ in items[old.done : new.done]:
                yield Change(shard, None)
            if new.done < len(items):
                yield Change(items[new.done][0], new.taken)


def share(batch_size: int, rank: int, readers: int) -> int:
    """Returns a rank's samples of a step; 0: it does not read."""
    if rank < readers:
        return batch_size * (rank + 1) // readers - batch_size * rank // readers
    return 0


def deals_again(counts: Sequence[int], left: int, readers: int) -> bool:
    """Whether dealing again would give shards to a rank without samples (`counts`)."""
    busy = sum(count > 0 for count in counts)
    return 0 < busy < min(readers, left)
