"""Deals the shards that are left to the ranks and their workers. No torch.

All ranks know the place, so each knows what every other one reads, and sends nothing.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from elastic_pytorch.training.micro_batches import even_share
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

    def of_worker(self, rank: int, worker: int) -> list[tuple[int, int]]:
        """Returns the items that a worker reads one after the other."""
        return [self.items[number] for number in self._numbers(rank, worker)]

    def begin(self, rank: int) -> list[Position]:
        workers = (self._numbers(rank, worker) for worker in range(self.workers))
        return [Position(0, self.items[each[0]][1] if each else 0) for each in workers]

    def changes(
        self, rank: int, before: Sequence[Position], after: Sequence[Position]
    ) -> Iterator[Change]:
        for worker, (old, new) in enumerate(zip(before, after, strict=True)):
            if old == new:
                continue
            numbers = self._numbers(rank, worker)
            for number in numbers[old.done : new.done]:
                yield Change(self.items[number][0], None)
            if new.done < len(numbers):
                yield Change(self.items[numbers[new.done]][0], new.taken)

    def _numbers(self, rank: int, worker: int) -> range:
        """Neighbours go to different ranks, so that all of them have some as long as possible."""
        end = len(self.items) if rank < self.readers else 0
        return range(worker * self.readers + rank, end, self.readers * self.workers)


def share(batch_size: int, rank: int, readers: int) -> int:
    """Returns a rank's samples of a step; 0: it does not read."""
    return len(even_share(batch_size, rank, readers)) if rank < readers else 0


def deals_again(counts: Sequence[int], left: int, readers: int) -> bool:
    """Whether dealing again would give shards to a rank without samples (`counts`)."""
    busy = sum(count > 0 for count in counts)
    return 0 < busy < min(readers, left)
