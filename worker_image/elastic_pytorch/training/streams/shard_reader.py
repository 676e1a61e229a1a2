"""Reads shards in batches, from where another group may have stopped."""

import inspect
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from elastic_pytorch.log import logger
from elastic_pytorch.training.streams.deal import Position

SHORTER = "it had {} samples at least, and has {} now"
Read = Callable[..., Iterable[Any]]


class Reading(NamedTuple):
    """Samples of one step, none at the end of the shards, and newly unreadable shards."""

    samples: list[Any]
    position: Position
    skipped: list[int]


class Unreadable(RuntimeError):
    """A shard cannot be read."""


@dataclass(slots=True)
class Shards:
    """The samples of each shard in the order of an epoch."""

    names: Sequence[Any]
    read: Read
    block: int  # successive samples that are shuffled together; 0: none
    seed: int
    epoch: int

    def samples(self, shard: int, start: int) -> Iterator[Any]:
        """Yields a shard's samples from the one with the number `start` on.

        The order within a block depends on seed, epoch, shard and block alone, so a shard that is
        read again leaves out the same samples.

        Raises:
            Exception: what the reader raises; or an Unreadable, if there were more samples before.
        """
        begin = start - start % self.block if self.block else start
        source = self._from(shard, begin)
        if not self.block:
            yield from source
            return
        while block := list(islice(source, self.block)):
            random.Random(f"{self.seed} {self.epoch} {shard} {begin}").shuffle(block)
            yield from block[max(0, start - begin) :]
            begin += len(block)
        if begin < start:
            raise Unreadable(SHORTER.format(start, begin))

    def _from(self, shard: int, start: int) -> Iterator[Any]:
        name = self.names[shard]
        if start and takes_start(self.read):
            yield from self.read(name, start=start)
            return
        samples = iter(self.read(name))
        passed = sum(1 for _ in islice(samples, start))
        if passed < start:
            raise Unreadable(SHORTER.format(start, passed))
        yield from samples


def takes_start(read: Read) -> bool:
    try:
        return "start" in inspect.signature(read).parameters
    except (TypeError, ValueError):  # of a function in C
        return False


def read_shards(
    items: Sequence[tuple[int, int]],
    shards: Shards,
    size: int,
    *,
    drop_last: bool,
    skip_unreadable: bool,
) -> Iterator[Reading]:
    """Yields the items' samples, `size` at a time, and at last a reading without any.

    A reading is given when the sample after it is known, so its position shows which shards have
    ended.

    Raises:
        Unreadable: a shard cannot be read; the message names it.
    """
    samples: list[Any] = []
    skipped: list[int] = []
    position = Position(0, items[0][1] if items else 0)
    for done, (shard, start) in enumerate(items):
        source, taken = shards.samples(shard, start), start
        while True:
            try:
                sample = next(source)
            except StopIteration:
                break
            except Exception as error:
                message = (
                    f"shard {shards.names[shard]!r} cannot be read: "
                    f"{type(error).__name__}: {error}; after {taken} samples"
                )
                if not skip_unreadable:
                    raise Unreadable(
                        f"{message}. To go on without the rest of it, give skip_unreadable=True"
                    ) from error
                logger.warning("%s; the rest of it is skipped", message)
                skipped.append(shard)
                break
            if len(samples) == size:
                yield Reading(samples, position, skipped)
                samples, skipped = [], []
            samples.append(sample)
            taken += 1
            position = Position(done, taken)
        position = Position(done + 1, items[done + 1][1] if done + 1 < len(items) else 0)
    if samples and not (drop_last and len(samples) < size):
        yield Reading(samples, position, skipped)
        skipped = []
    yield Reading([], position, skipped)
