"""The done shards of an epoch, and the samples taken of open ones."""

import random
from collections.abc import Iterable
from typing import NamedTuple

TO_BE_READ, DONE = 0, 1


class Change(NamedTuple):
    """The samples taken of a shard after a step; None: it is done."""

    shard: int
    taken: int | None


class Place:
    def __init__(self, status: bytearray, taken: dict[int, int] | None = None) -> None:
        self.status = status
        self.taken = taken or {}

    def copy(self) -> "Place":
        return Place(bytearray(self.status), dict(self.taken))

    def apply(self, changes: Iterable[Change]) -> None:
        for shard, taken in changes:
            if taken is None:
                self.status[shard] = DONE
                self.taken.pop(shard, None)
            elif taken:
                self.taken[shard] = taken

    @property
    def left(self) -> int:
        return self.status.count(TO_BE_READ)

    def rest(self, order: Iterable[int]) -> list[tuple[int, int]]:
        """Returns shards that are not done, and the samples taken of each: open ones first."""
        left = [shard for shard in order if self.status[shard] == TO_BE_READ]
        return sorted(
            ((shard, self.taken.get(shard, 0)) for shard in left), key=lambda item: item[1] == 0
        )


def order_of(shards: int, *, shuffle: bool, seed: int, epoch: int) -> list[int]:
    numbers = list(range(shards))
    if shuffle:
        random.Random(f"{seed} {epoch}").shuffle(numbers)
    return numbers
