"""A stream of samples, for a group of any size."""

import hashlib
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset

from elastic_pytorch.state.values.rng_state import mixed
from elastic_pytorch.training.data_parallel import DataParallel
from elastic_pytorch.training.iteration import Epochs, Iteration, refuse_another
from elastic_pytorch.training.micro_batches import StepShare
from elastic_pytorch.training.streams.place import Change, Place, order_of
from elastic_pytorch.training.streams.shard_reader import Read, Shards

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from elastic_pytorch.training.streams.loader import StreamLoader

NOT_TAKEN = (
    "this step has no batch of the stream: iterate a StreamLoader of it, "
    "and call `advance` or State.commit once a step"
)


@dataclass(slots=True)
class TakenStep:
    """A step that a loader has handed on."""

    changes: list[Change]
    samples: int  # of all ranks together
    parts: list[int]  # the samples of each micro-batch of this rank; 0: it does not count
    skipped: list[int]  # shards that could not be read
    ends_epoch: bool = False


@dataclass(slots=True)
class EpochLeft:
    """What is left of an epoch; `alike` must be the same on all ranks."""

    place: Place
    order: list[int]
    shards: Shards
    alike: dict[str, object]
    iteration: Iteration


class ElasticStream(Epochs):
    """Samples that can only be read one after the other, in shards, for a group of any size.

    Args:
        shards: the names, paths, URLs or numbers of the shards, which must be the same after each
            restart.
        read: returns the samples of a shard, always the same ones in the same order. A parameter
            `start` gets the number of the first one to return, from 0; without it, the samples
            before are read again.
        batch_size: samples of a step, of all ranks together. A step has fewer when a worker comes
            to the end of its shards, and when there are fewer shards left than ranks.
        micro_batch_size: the most samples of a rank's share that the model sees at once. None: all.
        shuffle_block: how many successive samples of a shard are shuffled together, in memory. To
            go on within a shard takes reading that many again. 0: none.
        drop_last: whether to leave out the rest of a worker's shards that is less than a rank's
            share of a step.
        skip_unreadable: whether to leave out the rest of a shard that cannot be read, which is an
            error otherwise.
        seed_random: whether `part` seeds the random number generators, by the step and the rank.

    Attributes:
        samples: how many of this epoch the group has trained on.

    Raises:
        TypeError: the shards are no sequence of names or numbers, or `read` is no function.
        ValueError: there are no shards, or a size is invalid; or the mesh is, as for an
            ElasticSampler.
    """

    _called = "stream"

    def __init__(
        self,
        shards: Sequence[Any],
        read: Read,
        batch_size: int,
        *,
        micro_batch_size: int | None = None,
        shuffle: bool = True,
        shuffle_block: int = 0,
        seed: int = 0,
        drop_last: bool = False,
        skip_unreadable: bool = False,
        seed_random: bool = True,
        mesh: "DeviceMesh | None" = None,
    ) -> None:
        super().__init__()
        self._names = _names(shards)
        if not callable(read):
            raise TypeError(
                "read must be a function of a shard that returns its samples, "
                f"not a {type(read).__name__}"
            )
        for name, size, least in (
            ("batch_size", batch_size, 1),
            ("micro_batch_size", micro_batch_size, 1),
            ("shuffle_block", shuffle_block, 0),
        ):
            if size is not None and index(size) < least:
                raise ValueError(f"{name} must be at least {least}, not {size}")
        self._read = read
        self.samples_per_step = index(batch_size)  # of all ranks together
        self.micro_batch_size = micro_batch_size
        self.drop_last, self.skip_unreadable = drop_last, skip_unreadable
        self._shuffle = shuffle
        self._block = index(shuffle_block)
        self._seed = index(seed)
        self._seed_random = seed_random
        self._checksum = hashlib.blake2b(repr(self._names).encode(), digest_size=8).hexdigest()
        self.data_parallel = DataParallel(mesh)
        self.samples = 0
        self._steps = 0  # of this epoch
        self._place = Place(bytearray(len(self._names)))
        self._skipped: list[int] = []
        self._taken: deque[TakenStep] = deque()  # by a loader, and not yet advanced over

    # --- the place in the training ---

    def state_dict(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "steps": self._steps,
            "samples": self.samples,
            "skipped": list(self._skipped),
            "status": torch.frombuffer(bytearray(self._place.status), dtype=torch.uint8),
            "taken": sorted(map(list, self._place.taken.items())),
            **self._meaning(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a place; raises a ValueError if that is in another stream."""
        refuse_another(state, self._meaning(), "the saved place is of another stream")
        self.epoch = int(state["epoch"])
        self._steps = int(state["steps"])
        self.samples = int(state["samples"])
        self._skipped = [int(shard) for shard in state["skipped"]]
        self._place = Place(
            bytearray(state["status"].tolist()),
            {int(shard): int(taken) for shard, taken in state["taken"]},
        )
        self._begin_step()
        self._loads += 1
        self._taken.clear()

    @property
    def _reached(self) -> int:
        return self._steps

    def _meaning(self) -> dict[str, Any]:
        return {
            "shards": len(self._names),
            "checksum of the shards": self._checksum,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "shuffle_block": self._block,
        }

    @property
    def skipped(self) -> list[Any]:
        """The shards of this epoch that could not be read to their end."""
        return [self._names[shard] for shard in self._skipped]

    def loader(self, **options: Any) -> "StreamLoader":
        """Returns a StreamLoader with these options."""
        from elastic_pytorch.training.streams.loader import StreamLoader  # noqa: PLC0415 # it is made of streams

        return StreamLoader(self, **options)

    def _pass_step(self) -> bool:
        step = self._taken.popleft()
        self._place.apply(step.changes)
        self._skipped += step.skipped
        self._steps, self.samples = self._steps + 1, self.samples + step.samples
        if step.ends_epoch:
            self.end_epoch()
        return step.ends_epoch

    def end_epoch(self) -> None:
        """Moves to the next epoch; raises a ValueError if this one had no samples."""
        if not self.samples:
            raise ValueError(f"none of the {len(self._names)} shards has a sample")
        self.epoch, self._steps, self.samples = self.epoch + 1, 0, 0
        self._place, self._skipped = Place(bytearray(len(self._names))), []

    @property
    def ends_epoch(self) -> bool:
        return bool(self._taken) and self._taken[0].ends_epoch

    # --- for its loader ---

    def begin(self) -> EpochLeft:
        """Begins an iteration instead of any before."""
        self._loads += 1
        self._taken.clear()
        self._micro = 0
        self._iteration = Iteration(self._loads)
        place = self._place.copy()
        return EpochLeft(
            place=place,
            order=order_of(
                len(self._names), shuffle=self._shuffle, seed=self._seed, epoch=self.epoch
            ),
            shards=Shards(self._names, self._read, self._block, self._seed, self.epoch),
            alike={
                **self._meaning(),
                "batch_size": self.samples_per_step,
                "micro_batch_size": self.micro_batch_size,
                "drop_last": self.drop_last,
                "place": (self.epoch, bytes(place.status), sorted(place.taken.items())),
            },
            iteration=self._iteration,
        )

    def worker_seed(self, number: int, rank: int) -> int:
        """Returns the seed of a deal's workers, one for ranks with the same samples."""
        return mixed(self._seed, self.epoch, self.samples, number, rank)

    # --- the current micro-batch ---

    def _share_of_step(self) -> StepShare:
        if not self._taken:
            raise RuntimeError(NOT_TAKEN)
        step = self._taken[0]
        return StepShare(step.parts, step.samples, self.data_parallel.place()[1])

    def _numbers_of_part(self) -> tuple[int, ...]:
        return self._seed, self.epoch, self.samples, self._micro, self.data_parallel.place()[0]


def _names(shards: Any) -> list[Any]:
    is_list = hasattr(shards, "__len__") and hasattr(shards, "__getitem__")
    if not is_list or isinstance(shards, (str, bytes, Dataset)):
        raise TypeError(
            f"shards must be a list of names, URLs or numbers, not a {type(shards).__name__}. "
            "Of a stream that is read as a whole, nothing can be dealt out: "
            "give the names of its shards, and a `read` that opens one. "
            "A dataset that has a length and an index is for an ElasticSampler"
        )
    names = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in shards]
    wrong = next((each for each in names if not _is_plain(each)), None)
    if wrong is not None:
        raise TypeError(
            f"a shard is a name, a path, a URL or a number, not a {type(wrong).__name__}: "
            "let `read` open it"
        )
    if not names:
        raise ValueError("there are no shards")
    return names


def _is_plain(name: Any) -> bool:
    return isinstance(name, (str, int)) or (isinstance(name, tuple) and all(map(_is_plain, name)))
