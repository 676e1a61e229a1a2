"""The ranks of a group as threads of the test, each with a stream and a loader of its own."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from elastic_pytorch.training.streams.exchange import Exchange
from elastic_pytorch.training.streams.loader import StreamLoader
from elastic_pytorch.training.streams.stream import ElasticStream

Make = Callable[[], ElasticStream]
SECONDS = 120.0


class ThreadGroup:
    """What Groups is, for threads."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._meet = threading.Barrier(ranks, timeout=SECONDS)
        self._told: list[Any] = [None] * ranks

    def of(self, rank: int, copies: int = 1) -> "RankOfThreads":
        return RankOfThreads(self, rank, copies)

    def gather(self, rank: int, own: Any) -> list[Any]:
        self._told[rank] = own
        self._meet.wait()
        told = list(self._told)
        self._meet.wait()
        return told

    def abort(self) -> None:
        self._meet.abort()


class RankOfThreads:
    """A rank of it; `copies` successive ranks share a place among the data-parallel ones."""

    def __init__(self, group: ThreadGroup, rank: int, copies: int) -> None:
        self.group, self.rank, self.copies = group, rank, copies

    def place(self) -> tuple[int, int]:
        return self.rank // self.copies, self.group.ranks // self.copies

    def exchange(self, place: tuple[int, int]) -> Exchange:
        def gather(own: Any) -> list[Any]:
            return self.group.gather(self.rank, own)

        return Exchange(lambda numbers: [list(each) for each in gather(numbers)], gather, place)


def run_ranks(
    count: int,
    make: Make,
    train: Callable[[ElasticStream, StreamLoader], Any],
    copies: int = 1,
    **options: Any,
) -> list[Any]:
    """What a function returns in each rank of a group; an error of one rank ends all."""
    group = ThreadGroup(count)

    def run(rank: int) -> Any:
        stream = make()
        loader = StreamLoader(stream, **options)
        mine: Any = group.of(rank, copies)
        loader._groups = stream.data_parallel = mine
        try:
            return train(stream, loader)
        except BaseException:
            group.abort()
            raise

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(run, rank) for rank in range(count)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        own = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
        if errors:
            raise (own or errors)[0]
        return [future.result() for future in futures]


def as_list(samples: Sequence[Any]) -> list[Any]:
    return list(samples)
