"""What runs in a DataLoader's workers: each reads its own shards."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker as worker_module

from elastic_pytorch.training.streams.deal import Position
from elastic_pytorch.training.streams.shard_reader import Shards, read_shards

Collate = Callable[[list[Any]], Any]


class Shipped(NamedTuple):
    """A `Reading` that a worker sends, collated."""

    worker: int
    position: Position
    skipped: list[int]
    samples: int
    parts: list[Any]


@dataclass(eq=False)
class WorkerShards(IterableDataset[Shipped]):
    items: Sequence[Sequence[tuple[int, int]]]  # of each worker of the rank
    shards: Shards
    share: int  # the rank's samples of a step
    micro_batch_size: int
    collate: Collate
    drop_last: bool
    skip_unreadable: bool

    def __iter__(self) -> Iterator[Shipped]:
        """Yields this worker's samples for each step, and at last only its position."""
        number = be_the_only_worker()
        if not self.items[number]:
            return
        for samples, position, skipped in read_shards(
            self.items[number],
            self.shards,
            self.share,
            drop_last=self.drop_last,
            skip_unreadable=self.skip_unreadable,
        ):
            size = self.micro_batch_size
            parts = [
                self.collate(samples[begin : begin + size])
                for begin in range(0, len(samples), size)
            ]
            yield Shipped(number, position, skipped, len(samples), parts)


def be_the_only_worker() -> int:
    """Returns this worker's number, and has torch call it the only one from now on.

    Datasets of others (Hugging Face, WebDataset) leave out what they take to be another worker's.
    """
    info = get_worker_info()
    if info is None or info.num_workers == 1:
        return 0
    worker_module._worker_info = type(info)(
        id=0, num_workers=1, seed=info.seed, dataset=info.dataset
    )
    now = get_worker_info()
    if now is None or now.num_workers != 1:
        raise RuntimeError(
            "this release of torch has no worker that is the only one: "
            "give StreamLoader num_workers=1 at most"
        )
    return info.id


def as_it_is(shipped: Any) -> Any:
    """Returns what a worker ships: it has been collated already."""
    return shipped
