"""Reads an ElasticStream in the processes of a DataLoader, and hands the batches of each step on."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import count, islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info
from torch.utils.data._utils import worker as worker_module

from elastic_pytorch.training.streams.deal import Deal, Position, deals_again, share
from elastic_pytorch.training.streams.exchange import Exchange, Groups, Told
from elastic_pytorch.training.streams.lane import Shards, Unreadable, read_lane
from elastic_pytorch.training.streams.place import Change, Place
from elastic_pytorch.training.streams.stream import ElasticStream, TakenStep

Collate = Callable[[list[Any]], Any]

GIVEN_BY_THE_STREAM = ("batch_size", "batch_sampler", "sampler", "shuffle", "drop_last", "generator")


class Shipped(NamedTuple):
    """What a worker sends: a reading of its lane, collated.

    Attributes:
        worker: its number.
        position: of its lane after the samples.
        skipped: the numbers of shards that could not be read.
        samples: how many there are; 0: the lane has ended.
        parts: the micro-batches.
    """

    worker: int
    position: tuple[int, int]
    skipped: list[int]
    samples: int
    parts: list[Any]


class StreamLoader:
    """The batches of an ElasticStream: a DataLoader whose workers each read shards of their own.

    To be iterated on all ranks, in the thread that trains: before each step the ranks tell each other how many samples they have. When a
    rank has no samples left, it gets a batch of weight 0, so that all ranks do the same number of steps.

    Iterating yields micro-batches, from the place of the stream to the end of its epoch. It reads one step ahead, and what the workers
    prefetch besides. What a changed group did not train on is read again.

    Args:
        stream: whose batches to give.
        collate_fn: makes a batch of a list of samples. None: torch's `default_collate`.
        num_workers: as of a DataLoader; the same on all ranks. Each reads other shards.
        options: others of a DataLoader: `pin_memory`, `prefetch_factor`, `timeout`, `worker_init_fn`, `multiprocessing_context`.

    Raises:
        TypeError: this is no ElasticStream, or an option is the stream's.
        ValueError: the workers are to outlive an epoch, or to send batches out of order.
    """

    def __init__(
        self, stream: ElasticStream, *, collate_fn: Collate | None = None, num_workers: int = 0, **options: Any
    ) -> None:
        if not isinstance(stream, ElasticStream):
            raise TypeError(f"StreamLoader needs an ElasticStream, not a {type(stream).__name__}")
        if wrong := [name for name in GIVEN_BY_THE_STREAM if name in options]:
            raise TypeError(f"{wrong[0]}: the ElasticStream says so, and not its loader")
        if options.get("persistent_workers"):
            raise ValueError("persistent_workers=True: workers get their shards as they start, in each epoch and each group")
        if options.get("in_order") is False:
            raise ValueError("in_order=False: a batch would then meet the weight of another one")
        self.stream = stream
        self._collate, self._workers, self._options = collate_fn or default_collate, num_workers, options
        self._groups = Groups()
        self._stand_in: list[Any] = []  # samples that do not count

    def __iter__(self) -> Iterator[Any]:
        """Yields the micro-batches of this rank, from the current place to the end of the epoch. Collective."""
        place, order, shards, alike = self.stream.begin()
        ticket = self.stream.ticket()
        exchange = self._groups.exchange(self.stream.data_parallel.place())
        exchange.compare({**alike, "num_workers": self._workers})
        return self._batches(self._steps(exchange, place, order, shards), exchange, shards, order, ticket)

    def _batches(
        self,
        steps: Iterator[tuple[TakenStep, list[Any]]],
        exchange: Exchange,
        shards: Shards,
        order: list[int],
        ticket: int,
    ) -> Iterator[Any]:
        held: tuple[TakenStep, list[Any]] | None = None
        for following in steps:
            if following[0].samples == 0:  # the epoch has ended
                if held is not None:
                    held[0].skipped += following[0].skipped
                break
            if held is not None:
                yield from self._hand_on(*held, exchange, shards, order, ticket)
            held = following
        if held is None:
            self.stream.end_epoch()
            return
        held[0].ends_epoch = True
        yield from self._hand_on(*held, exchange, shards, order, ticket)

    def _hand_on(
        self, step: TakenStep, parts: list[Any], exchange: Exchange, shards: Shards, order: list[int], ticket: int
    ) -> Iterator[Any]:
        # Idle ones come first, so that the last micro-batch, after which the ranks synchronise, counts on every rank if possible.
        idle = len(step.parts) - len(parts)
        for number in range(len(step.parts)):
            self.stream.give(ticket)
            if number == 0:
                self.stream.take(step)
            yield parts[number - idle] if number >= idle else self._idle_batch(exchange, shards, order)

    def _steps(
        self, exchange: Exchange, place: Place, order: list[int], shards: Shards
    ) -> Iterator[tuple[TakenStep, list[Any]]]:
        """Yields the steps of the group, and this rank's micro-batches of each; and at last a step without samples."""
        stream = self.stream
        readers = min(exchange.ranks, stream.samples_per_step)
        empty: list[Change] = []  # and shards that were skipped, of steps that were dealt again
        unread: list[int] = []
        for number in count():
            deal = Deal(place.rest(order), readers, max(1, self._workers))
            before = [deal.begin(rank) for rank in range(exchange.ranks)]
            own = list(before[exchange.rank])
            shipped = iter(self._loader(deal, exchange.rank, shards, number))
            while True:
                samples, parts, skipped = _next_samples(shipped, own)
                told = exchange.tell(Told(samples, len(skipped), tuple(own)))
                counts = [each.samples for each in told]
                again = deals_again(counts, len(place.rest(order)), readers)
                if again:  # what busy ranks have read is read again
                    told = [Told(0, 0, tuple(before[rank])) if each.samples else each for rank, each in enumerate(told)]
                    skipped = [] if samples else skipped
                changes = [
                    change for rank, each in enumerate(told) for change in deal.changes(rank, before[rank], each.lanes)
                ]
                place.apply(changes)
                empty, unread = empty + changes, unread + exchange.all_skipped(skipped, told)
                if again:
                    break
                parts_each = _parts_of(counts, exchange.rank, stream.micro_batch_size)
                yield TakenStep(empty, sum(counts), parts_each, ends_epoch=False, skipped=unread), parts
                if not any(counts):
                    return
                empty, unread = [], []
                before = [list(each.lanes) for each in told]

    def _loader(self, deal: Deal, rank: int, shards: Shards, number: int) -> Any:
        lanes = [deal.lane(rank, worker) for worker in range(deal.workers)]
        stream = self.stream
        size = share(stream.samples_per_step, rank, deal.readers)
        dataset = _Lanes(lanes, shards, size, stream.micro_batch_size or size, self._collate, stream.drop_last, stream.skip_unreadable)
        if not any(lanes):
            return ()
        generator = torch.Generator().manual_seed(stream.worker_seed(number, rank))
        return DataLoader(
            dataset, batch_size=None, collate_fn=_as_it_is, num_workers=self._workers, generator=generator, **self._options
        )

    def _idle_batch(self, exchange: Exchange, shards: Shards, order: list[int]) -> Any:
        """Returns a batch that does not count, for a rank that has no samples left: the first ones of some shard."""
        if not self._stand_in:
            share_ = -(-self.stream.samples_per_step // min(exchange.ranks, self.stream.samples_per_step))
            size = min(share_, self.stream.micro_batch_size or share_)
            for shard in order:
                try:
                    self._stand_in = list(islice(shards.samples(shard, 0), size))
                except Exception:  # noqa: BLE001 - whatever a reader raises: the rank whose shard it is tells it
                    continue
                if self._stand_in:
                    break
            else:
                raise Unreadable("no shard could be read for a batch that does not count, which this rank needs: the others have samples left")
        return self._collate(deepcopy(self._stand_in))


class _Lanes(IterableDataset[Shipped]):
    """The lanes of a rank; each worker of a DataLoader reads its own."""

    def __init__(
        self,
        lanes: list[Any],
        shards: Shards,
        size: int,
        micro_batch_size: int,
        collate: Collate,
        drop_last: bool,
        skip_unreadable: bool,
    ) -> None:
        self._lanes, self._shards, self._size, self._micro_batch_size = lanes, shards, size, micro_batch_size
        self._collate, self._drop_last, self._skip_unreadable = collate, drop_last, skip_unreadable

    def __iter__(self) -> Iterator[Shipped]:
        number = be_the_only_worker()
        lane = self._lanes[number]
        if not lane:
            return
        for samples, position, skipped in read_lane(
            lane, self._shards, self._size, drop_last=self._drop_last, skip_unreadable=self._skip_unreadable
        ):
            size = self._micro_batch_size
            parts = [self._collate(samples[begin : begin + size]) for begin in range(0, len(samples), size)]
            yield Shipped(number, tuple(position), skipped, len(samples), parts)


def be_the_only_worker() -> int:
    """Returns the number of this worker of a DataLoader, and has it be the only one from now on, for all that asks torch.

    Datasets of others (Hugging Face, WebDataset) leave out what they take to be another worker's. The shards have been dealt out already.

    Raises:
        RuntimeError: torch keeps it elsewhere than this library knows.
    """
    info = get_worker_info()
    if info is None or info.num_workers == 1:
        return 0
    worker_module._worker_info = type(info)(id=0, num_workers=1, seed=info.seed, dataset=info.dataset)
    now = get_worker_info()
    if now is None or now.num_workers != 1:
        raise RuntimeError("this release of torch has no worker that is the only one: give StreamLoader num_workers=1 at most")
    return info.id


def _as_it_is(shipped: Shipped) -> Shipped:
    return shipped


def _next_samples(shipped: Iterator[Shipped], own: list[Position]) -> tuple[int, list[Any], list[int]]:
    """Takes this rank's next samples, and moves its lanes on.

    Returns:
        How many there are, their micro-batches, and the shards that were skipped.
    """
    skipped: list[int] = []
    for each in shipped:
        own[each.worker] = Position(*each.position)
        skipped += each.skipped
        if each.samples:
            return each.samples, each.parts, skipped
    return 0, [], skipped


def _parts_of(counts: list[int], rank: int, micro_batch_size: int | None) -> list[int]:
    """Returns the samples of each of a rank's micro-batches in a step; as many on all ranks."""
    size = micro_batch_size or max(1, *counts)
    own = [min(size, counts[rank] - begin) for begin in range(0, counts[rank], size)]
    return [0] * (-(-max(counts) // size) - len(own)) + own
