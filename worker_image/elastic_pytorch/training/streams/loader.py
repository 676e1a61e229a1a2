"""Reads an ElasticStream in the workers of a DataLoader."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate

from elastic_pytorch.training.streams.deal import Deal, Position, deals_again, share
from elastic_pytorch.training.streams.exchange import Exchange, Groups, Report
from elastic_pytorch.training.streams.place import Change
from elastic_pytorch.training.streams.shard_reader import Unreadable
from elastic_pytorch.training.streams.stream import ElasticStream, EpochLeft, TakenStep
from elastic_pytorch.training.streams.workers import Collate, Shipped, WorkerShards, as_it_is

GIVEN_BY_THE_STREAM = (
    "batch_size",
    "batch_sampler",
    "sampler",
    "shuffle",
    "drop_last",
    "generator",
)


class StreamLoader:
    """A DataLoader of an ElasticStream, whose workers each read shards of their own.

    All ranks iterate it in the thread that trains, as they exchange their numbers of samples before
    each step. It yields micro-batches, from the place of the stream to the end of its epoch. A rank
    without samples gets a batch of weight 0.

    Args:
        collate_fn: makes a batch of a list of samples. None: torch's `default_collate`.
        num_workers: the same on all ranks.
        options: other options of a DataLoader, such as `pin_memory` and `prefetch_factor`.

    Raises:
        TypeError: `stream` is no ElasticStream, or an option is one that the stream decides.
        ValueError: the workers are to outlive an epoch, or to send batches out of order.
    """

    def __init__(
        self,
        stream: ElasticStream,
        *,
        collate_fn: Collate | None = None,
        num_workers: int = 0,
        **options: Any,
    ) -> None:
        if not isinstance(stream, ElasticStream):
            raise TypeError(f"StreamLoader needs an ElasticStream, not a {type(stream).__name__}")
        if wrong := [name for name in GIVEN_BY_THE_STREAM if name in options]:
            raise TypeError(f"{wrong[0]}: the ElasticStream says so, and not its loader")
        if options.get("persistent_workers"):
            raise ValueError(
                "persistent_workers=True: workers get their shards as they start, "
                "in each epoch and each group"
            )
        if options.get("in_order") is False:
            raise ValueError("in_order=False: a batch would then meet the weight of another one")
        self.stream = stream
        self._collate = collate_fn or default_collate
        self._workers = num_workers
        self._options = options
        self._groups = Groups()

    def __iter__(self) -> Iterator[Any]:
        left = self.stream.begin()
        exchange = self._groups.exchange(self.stream.data_parallel.place())
        exchange.compare({**left.alike, "num_workers": self._workers})
        return _Epoch(
            self.stream, left, exchange, self._collate, self._workers, self._options
        ).batches()


@dataclass(slots=True)
class _Epoch:
    """What is left of an epoch, as one group reads it."""

    stream: ElasticStream
    left: EpochLeft
    exchange: Exchange
    collate: Collate
    workers: int
    options: dict[str, Any]
    stand_in: list[Any] = field(default_factory=list)  # samples that do not count

    def batches(self) -> Iterator[Any]:
        """Yields the micro-batches of this rank, a step behind, to know which step is the last."""
        held: tuple[TakenStep, list[Any]] | None = None
        for step, parts in self.steps():
            if step.samples == 0:
                if held is not None:
                    held[0].skipped += step.skipped
                break
            if held is not None:
                yield from self.hand_on(*held)
            held = step, parts
        if held is None:
            self.stream.end_epoch()
            return
        held[0].ends_epoch = True
        yield from self.hand_on(*held)

    def hand_on(self, step: TakenStep, parts: list[Any]) -> Iterator[Any]:
        # Idle ones come first, as in `share_of_batch`.
        idle = len(step.parts) - len(parts)
        for number in range(len(step.parts)):
            self.left.iteration.give(self.stream._loads)
            if number == 0:
                self.stream._taken.append(step)
            yield parts[number - idle] if number >= idle else self.idle_batch()

    def steps(self) -> Iterator[tuple[TakenStep, list[Any]]]:
        """Yields each step with this rank's micro-batches, and at last one without samples."""
        place, order, exchange = self.left.place, self.left.order, self.exchange
        changes: list[Change] = []  # since the last step
        skipped: list[int] = []
        for number in count():
            deal = Deal(place.rest(order), self.readers, max(1, self.workers))
            before = [deal.begin(rank) for rank in range(exchange.ranks)]
            own = list(before[exchange.rank])
            shipped = iter(self.loader(deal, number))
            while True:
                samples, parts, own_skipped = _next_samples(shipped, own)
                reports = exchange.reports(Report(samples, len(own_skipped), tuple(own)))
                counts = [each.samples for each in reports]
                again = deals_again(counts, place.left, self.readers)
                if again:  # what busy ranks have read is read again
                    reports = [
                        Report(0, 0, tuple(before[rank])) if each.samples else each
                        for rank, each in enumerate(reports)
                    ]
                    own_skipped = [] if samples else own_skipped
                new = [
                    change
                    for rank, each in enumerate(reports)
                    for change in deal.changes(rank, before[rank], each.positions)
                ]
                place.apply(new)
                changes += new
                skipped += exchange.all_skipped(own_skipped, reports)
                if again:
                    break
                parts_of_rank = _parts_of(counts, exchange.rank, self.stream.micro_batch_size)
                yield TakenStep(changes, sum(counts), parts_of_rank, skipped), parts
                if not any(counts):
                    return
                changes, skipped = [], []
                before = [list(each.positions) for each in reports]

    @property
    def readers(self) -> int:
        return min(self.exchange.ranks, self.stream.samples_per_step)

    def loader(self, deal: Deal, number: int) -> Any:
        stream, rank = self.stream, self.exchange.rank
        items = [deal.of_worker(rank, worker) for worker in range(deal.workers)]
        if not any(items):
            return ()
        size = share(stream.samples_per_step, rank, deal.readers)
        dataset = WorkerShards(
            items,
            self.left.shards,
            size,
            micro_batch_size=stream.micro_batch_size or size,
            collate=self.collate,
            drop_last=stream.drop_last,
            skip_unreadable=stream.skip_unreadable,
        )
        generator = torch.Generator().manual_seed(stream.worker_seed(number, rank))
        return DataLoader(
            dataset,
            batch_size=None,
            collate_fn=as_it_is,
            num_workers=self.workers,
            generator=generator,
            **self.options,
        )

    def idle_batch(self) -> Any:
        """Returns uncounted samples of some shard, for a rank that has none left."""
        most = -(-self.stream.samples_per_step // self.readers)
        size = min(most, self.stream.micro_batch_size or most)
        for shard in () if self.stand_in else self.left.order:
            try:
                self.stand_in = list(islice(self.left.shards.samples(shard, 0), size))
            except Exception:  # of any reader; the rank that has the shard reports it
                continue
            if self.stand_in:
                break
        if not self.stand_in:
            raise Unreadable(
                "this rank has no samples left, and can read no shard for a batch that does not "
                "count"
            )
        return self.collate(deepcopy(self.stand_in))


def _next_samples(
    shipped: Iterator[Shipped], own: list[Position]
) -> tuple[int, list[Any], list[int]]:
    """Returns a number of samples, their micro-batches and skipped shards, and updates `own`."""
    skipped: list[int] = []
    for each in shipped:
        own[each.worker] = each.position
        skipped += each.skipped
        if each.samples:
            return each.samples, each.parts, skipped
    return 0, [], skipped


def _parts_of(counts: Sequence[int], rank: int, micro_batch_size: int | None) -> list[int]:
    """Returns the samples of a rank's micro-batches; as many on all ranks."""
    size = micro_batch_size or max(1, *counts)
    own = [min(size, counts[rank] - begin) for begin in range(0, counts[rank], size)]
    return [0] * (-(-max(counts) // size) - len(own)) + own
