"""What runs in the workers of a DataLoader: each reads one lane, and makes micro-batches of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker as worker_module

from elastic_pytorch.training.streams.deal import Position
from elastic_pytorch.training.streams.lane import Shards, read_lane

Collate = Callable[[list[Any]], Any]


class Shipped(NamedTuple):
    """What a worker sends: a reading of its lane, collated.

    Attributes:
        position: of its lane after the samples.
        skipped: the numbers of shards that could not be read.
        samples: how many there are; 0: the lane has ended.
    """

    worker: int
    position: Position
    skipped: list[int]
    samples: int
    parts: list[Any]


@dataclass(eq=False)
class Lanes(IterableDataset[Shipped]):
    """The lanes of a rank; each worker reads its own.

    Attributes:
        lanes: by worker: the shards, and the samples taken of each.
        size: of the rank's share of a step.
        micro_batch_size: the most samples of a micro-batch.
        drop_last: whether to leave out the rest of a lane that is less than a share.
        skip_unreadable: whether to go on if a shard cannot be read.
    """

    lanes: Sequence[Sequence[tuple[int, int]]]
    shards: Shards
    size: int
    micro_batch_size: int
    collate: Collate
    drop_last: bool
    skip_unreadable: bool

    def __iter__(self) -> Iterator[Shipped]:
        """Yields what this worker has for each step, and at last nothing but its place."""
        number = be_the_only_worker()
        if not self.lanes[number]:
            return
        for samples, position, skipped in read_lane(
            self.lanes[number],
            self.shards,
            self.size,
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
    """Returns the number of this worker of a DataLoader, and has it be the only one from now on, for all that asks torch.

    Datasets of others (Hugging Face, WebDataset) leave out what they take to be another worker's.
    The shards have been dealt out already.

    Raises:
        RuntimeError: torch keeps it elsewhere than this library knows.
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
            "this release of torch has no worker that is the only one: give StreamLoader num_workers=1 at most"
        )
    return info.id


def as_it_is(shipped: Any) -> Any:
    """Returns what a worker ships: it has been collated already."""
    return shipped
