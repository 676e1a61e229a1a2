"""The order of an epoch's samples, for a group of any size."""

import hashlib
from collections.abc import Iterable, Sequence, Sized
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset, Sampler

from elastic_pytorch.group.rank_group import first_other, gather_objects
from elastic_pytorch.state.values.rng_state import mixed
from elastic_pytorch.state_format.payload import memory_of

EPOCH_ALONE = (
    "what {name}= gives must depend on the epoch alone, which set_epoch tells it: not on the rank, "
    "nor on a generator that nothing seeds with the epoch, as torch.Generator().manual_seed(seed + "
    "epoch) does"
)


@dataclass(frozen=True, slots=True)
class Described:
    """What is kept of an epoch's order; `checksum` is of indices and ends."""

    epoch: int
    samples: int
    batches: int | None
    checksum: str

    def __str__(self) -> str:
        batches = "" if self.batches is None else f" in {self.batches} batches"
        return f"{self.samples} samples{batches}, with checksum {self.checksum}"


@dataclass(frozen=True)
class Made:
    """The order of an epoch: int64 indices on the CPU, and batches' ends if they have sizes."""

    epoch: int
    indices: torch.Tensor
    ends: tuple[int, ...] | None = None

    @cached_property
    def described(self) -> Described:
        digest = hashlib.blake2b(memory_of(self.indices), digest_size=8)
        if self.ends is not None:
            digest.update(memory_of(torch.tensor(self.ends)))
        return Described(
            self.epoch,
            len(self.indices),
            None if self.ends is None else len(self.ends),
            digest.hexdigest(),
        )


class EpochOrder:
    """The orders of all epochs, by the seed or as in the dataset. It keeps the last one."""

    name: str | None = None  # of the argument that gives the order; None: the seed does

    def __init__(self, length: int, *, shuffle: bool, seed: int = 0) -> None:
        self._length, self._shuffle, self._seed = length, shuffle, seed
        self._newest: Made | None = None

    def of(self, epoch: int) -> torch.Tensor:
        """Returns the indices, or raises a TypeError or ValueError for a Sampler of the script."""
        return self._made(epoch).indices

    def samples(self, epoch: int) -> int:
        del epoch
        return self._length

    def ends(self, epoch: int) -> tuple[int, ...] | None:
        del epoch
        return None

    def usual_batch(self, epoch: int, size: int) -> int:
        """Returns the samples of most steps in the newest step's epoch, or in `epoch` before any.

        After the newest step's, there may be no epoch.
        """
        return min(size, self.samples(epoch))

    def end_step(self, epoch: int) -> None:
        """Notes a step, whose epoch's order the state then describes."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises a ValueError if the order is not that of a saved state."""
        if (given := state.get("order", {}).get("given")) != self.name:
            was, now = (f"{name}=" if name else "the seed" for name in (given, self.name))
            raise ValueError(
                f"the order was that of {was}, and is that of {now} now: give what it was, "
                "or begin in another folder"
            )

    def compare(self, epoch: int) -> None:
        """Raises a RuntimeError, on all ranks, if a Sampler gives them unlike orders. Collective.

        `State.restore` makes sure that all ranks have the same seed and length.
        """

    def _made(self, epoch: int) -> Made:
        if self._newest is None or self._newest.epoch != epoch:
            self._newest = self._make(epoch)
        return self._newest

    def _make(self, epoch: int) -> Made:
        if not self._shuffle:
            return Made(epoch, torch.arange(self._length))
        generator = torch.Generator().manual_seed(mixed(self._seed, epoch))
        return Made(epoch, torch.randperm(self._length, generator=generator))


class SamplerOrder(EpochOrder):
    """The orders of all epochs, from a torch Sampler with `set_epoch`, or a BatchSampler of one.

    `name` is `sampler`, whose items are indices, or `batch_sampler`, whose items are batches of the
    whole group. Each epoch must have `least` samples of the dataset's `length`.
    """

    def __init__(self, length: int, name: str, sampler: Iterable[Any], least: int = 1) -> None:
        super().__init__(length, shuffle=False)
        self.name, self._sampler, self._least = name, sampler, least
        # A BatchSampler has the one with set_epoch in `sampler`, where Accelerate looks, too.
        owners = (sampler, getattr(sampler, "sampler", None))
        set_epoch = next(
            (found for owner in owners if callable(found := getattr(owner, "set_epoch", None))),
            None,
        )
        if set_epoch is None:
            raise TypeError(
                f"{name}= needs a Sampler with set_epoch(epoch), as torch's DistributedSampler has "
                f"it, and a {type(sampler).__name__} has none: each rank calls it for each epoch, "
                "and again after a restart, and must get the same order"
            )
        self._set_epoch: Any = set_epoch
        self._begun: Described | None = None  # the epoch of the newest step

    def samples(self, epoch: int) -> int:
        return len(self.of(epoch))

    def ends(self, epoch: int) -> tuple[int, ...] | None:
        return self._made(epoch).ends

    def usual_batch(self, epoch: int, size: int) -> int:
        newest = self._begun or self._made(epoch).described
        if newest.batches is None:
            return min(size, newest.samples)
        return max(1, round(newest.samples / newest.batches))

    def end_step(self, epoch: int) -> None:
        if self._begun is None or self._begun.epoch != epoch:
            self._begun = self._made(epoch).described

    def state_dict(self) -> dict[str, Any]:
        return {"order": {"given": self.name, **(asdict(self._begun) if self._begun else {})}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        saved = {name: value for name, value in state["order"].items() if name != "given"}
        was = Described(**saved) if saved else None
        if (
            was is not None
            and was != self._begun
            and (now := self._made(was.epoch).described) != was
        ):
            raise ValueError(
                f"the order of epoch {was.epoch} was of {was}, and {self.name}= now gives {now}. "
                "Give the sampler and the dataset as they were, or begin in another folder. "
                f"If they are, {EPOCH_ALONE.format(name=self.name)}"
            )
        self._begun = was

    def compare(self, epoch: int) -> None:
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            self.refuse_unlike(gather_objects(self._made(epoch).described, None))

    def refuse_unlike(self, orders: Sequence[Described]) -> None:
        if (other := first_other(orders)) is not None:
            first, second = orders[0], orders[other]
            epochs = (
                f"epoch {first.epoch}"
                if first.epoch == second.epoch
                else f"epochs {first.epoch} and {second.epoch}"
            )
            raise RuntimeError(
                f"ranks 0 and {other} have different orders for {epochs}: {first}, and {second}. "
                f"Samples would be lost or come twice: {EPOCH_ALONE.format(name=self.name)}"
            )

    def _make(self, epoch: int) -> Made:
        what, ends = f"epoch {epoch} of {self.name}=", None
        self._set_epoch(epoch)
        items = list(self._sampler)
        if self.name == "batch_sampler":
            parts = [
                _indices(each, f"batch {number} of {what}") for number, each in enumerate(items)
            ]
            empty = next((number for number, each in enumerate(parts) if not len(each)), None)
            if empty is not None:
                raise ValueError(
                    f"batch {empty} of {what} is empty: each batch is a step, and needs a sample"
                )
            ends = tuple(accumulate(map(len, parts)))
            indices = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
        else:
            indices = _indices(items, what)
        if not len(indices):
            raise ValueError(
                f"{what} has no samples: an epoch has one at least. "
                "The number of epochs says when training ends"
            )
        if len(indices) < self._least:
            raise ValueError(
                f"{what}: {len(indices)} samples make no batch of {self._least}, "
                "and drop_last leaves out what is shorter"
            )
        wrong = ((indices < 0) | (indices >= self._length)).nonzero()
        if len(wrong):
            place = int(wrong[0])
            raise ValueError(
                f"{what} has the index {int(indices[place])} in place {place}, "
                f"and the dataset has {self._length} samples: 0 to {self._length - 1}"
            )
        return Made(epoch, indices, ends)


def length_of(data: Sized | int) -> int:
    """Returns the number of samples; raises a TypeError or ValueError if there are none."""
    if isinstance(data, Sampler):
        raise TypeError(
            f"ElasticSampler needs the dataset, not a {type(data).__name__} of it. "
            "One with an order of its own goes into sampler="
        )
    if isinstance(data, IterableDataset) or not (isinstance(data, int) or hasattr(data, "__len__")):
        raise TypeError(
            f"ElasticSampler needs a dataset with a length, not {type(data).__name__}: "
            "an iterable one has no order that a group of another size could go on with. "
            "Give its shards to an ElasticStream"
        )
    length = data if isinstance(data, int) else len(data)
    if length < 1:
        raise ValueError("the dataset is empty")
    return length


def _indices(given: Iterable[Any], what: str) -> torch.Tensor:
    try:
        listed = list(given)
        found = torch.tensor(listed) if listed else torch.empty(0, dtype=torch.int64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{what} is no list of indices: {error}. Whole batches are given by batch_sampler="
        ) from error
    if (
        found.dim() != 1
        or found.is_floating_point()
        or found.is_complex()
        or found.dtype == torch.bool
    ):
        raise TypeError(
            f"{what} is of {found.dtype} and shape {list(found.shape)}, "
            "and not a flat list of indices, which are whole numbers. "
            "Whole batches are given by batch_sampler="
        )
    return found.to(torch.int64)
