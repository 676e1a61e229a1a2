"""The samples of each step, for a group of any size."""

from collections.abc import Iterable, Iterator, Sequence, Sized
from operator import index
from typing import TYPE_CHECKING, Any

from torch.utils.data import Sampler

from elastic_pytorch.state.values.rng_state import mixed, seed_all
from elastic_pytorch.training.data_parallel import DataParallel
from elastic_pytorch.training.epoch_batches import EpochBatches
from elastic_pytorch.training.epoch_order import EpochOrder, SamplerOrder, length_of
from elastic_pytorch.training.iteration import Epochs, Iteration, refuse_another
from elastic_pytorch.training.micro_batches import (
    Cut,
    MicroBatch,
    StepShare,
    parts_each,
    share_of_batch,
    shares_within,
)

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class ElasticSampler(Epochs, Sampler[list[int]]):
    """The `batch_sampler` of a DataLoader, for a group of any size.

    The position in an epoch is a number of samples of the whole group. Iterating never changes it,
    as a DataLoader runs ahead; `State.commit` does, by `advance`.

    Args:
        data: the Dataset, or its number of samples.
        batch_size: samples of a step, of all ranks together. The last batch of an epoch may be
            shorter.
        micro_batch_size: samples of the micro-batches that the ranks compute in turn. None: a rank
            computes its share of a batch at once; but see `keep_micro_batch`.
        per_worker_batch_size: instead of `batch_size`: samples of a step for each rank.
        sampler: a torch Sampler of the group's epoch, with `set_epoch(epoch)`. It may leave samples
            out or repeat them. None: each sample comes once.
        batch_sampler: instead of a batch size: such a Sampler of the group's batches, each as
            indices; or a BatchSampler of one.
        shuffle: whether each epoch has its own order.
        seed: the seed of the orders, the same on all ranks.
        drop_last: whether to leave out a shorter last batch.
        seed_random: whether `part` seeds the random number generators from its samples.
        mesh: the data-parallel DeviceMesh of a model that is also parallel in another way. Ranks
            that share a place in it get the same samples. None: all ranks count.
        keep_micro_batch: whether no micro-batch is larger than a rank's share in the largest group
            of the training. None: if `steps` trains a model on an accelerator. With True, a loop of
            your own computes each micro-batch in a `part`.

    Raises:
        TypeError: the data has no length, a size is not a whole number, or `sampler` or
            `batch_sampler` has no `set_epoch`.
        ValueError: a size is invalid, or the mesh is without this rank or not only data-parallel.
    """

    _called = "sampler"

    def __init__(
        self,
        data: Sized | int,
        batch_size: int | None = None,
        *,
        micro_batch_size: int | None = None,
        per_worker_batch_size: int | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        seed_random: bool = True,
        mesh: "DeviceMesh | None" = None,
        keep_micro_batch: bool | None = None,
    ) -> None:
        super().__init__()
        self._length = length_of(data)
        if (batch_size is not None) + (per_worker_batch_size is not None) + (
            batch_sampler is not None
        ) != 1:
            raise ValueError(
                "give batch_size (of the whole group), per_worker_batch_size or batch_sampler, "
                "one of them"
            )
        own: Iterable[Any] | None = sampler if batch_sampler is None else batch_sampler
        if (sampler is not None and batch_sampler is not None) or (own is not None and not shuffle):
            raise ValueError(
                "sampler, batch_sampler and shuffle=False each say in which order the samples "
                "come: give one of them"
            )
        if drop_last and batch_size is None:
            raise ValueError(
                "drop_last needs a batch_size: with a batch that grows with the group, "
                "each group would drop others, and of batch_sampler= none is cut short"
            )
        if drop_last and batch_size is not None and self._length < batch_size and own is None:
            raise ValueError(
                f"{self._length} samples make no batch of {batch_size}, "
                "and drop_last leaves out what is shorter"
            )
        if keep_micro_batch and (per_worker_batch_size is not None or micro_batch_size is not None):
            raise ValueError(
                "keep_micro_batch is for a batch_size without a micro_batch_size: "
                "otherwise no micro-batch grows anyway"
            )
        # Private: Accelerate and Lightning shard an object with batch_size and drop_last again, as
        # torch's BatchSampler.
        self._batch_size = _size("batch_size", batch_size)
        self._per_worker_batch_size = _size("per_worker_batch_size", per_worker_batch_size)
        self.micro_batch_size = _size("micro_batch_size", micro_batch_size)
        self._keeps = keep_micro_batch
        self._largest = 1  # data-parallel ranks of the largest group of this training
        self._drop_last = drop_last
        self._shuffle = shuffle
        self._seed = index(seed)
        self._seed_random = seed_random
        self.data_parallel = DataParallel(mesh)
        self.cursor = 0  # samples of this epoch that are done
        self._look_at_group()
        self._order = EpochOrder(self._length, shuffle=shuffle, seed=self._seed)
        if own is not None:
            least = self._batch_size or 1 if drop_last else 1
            self._order = SamplerOrder(
                self._length, "sampler" if batch_sampler is None else "batch_sampler", own, least
            )

    # --- the position in the training ---

    def state_dict(self) -> dict[str, Any]:
        place = {"epoch": self.epoch, "cursor": self.cursor, "largest_group": self._largest}
        return place | self._meaning() | self._order.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a position; raises a ValueError if that is in another order."""
        refuse_another(state, self._meaning(), "the saved place in the data is of another sampler")
        self._order.load_state_dict(state)
        self._largest = int(state.get("largest_group", 1))
        self._look_at_group()
        self.epoch, self.cursor = int(state["epoch"]), int(state["cursor"])
        self._begin_step()
        self._loads += 1
        self._iteration = None

    @property
    def _reached(self) -> int:
        return self.cursor

    def _meaning(self) -> dict[str, Any]:
        return {
            "length": self._length,
            "batch_size": self._batch_size,
            "per_worker_batch_size": self._per_worker_batch_size,
            "shuffle": self._shuffle,
            "seed": self._seed,
            "drop_last": self._drop_last,
        }

    def _pass_step(self) -> bool:
        self._order.end_step(self.epoch)
        batches = self._batches_of(self.epoch)
        self.cursor = batches.end(self.cursor)
        if ends_epoch := self.cursor >= batches.samples:
            self.epoch, self.cursor = self.epoch + 1, 0
        return ends_epoch

    @property
    def samples_per_step(self) -> int:
        """Samples of a step of all ranks; of a `batch_sampler`, the epoch's mean."""
        self._look_at_group()
        return self._order.usual_batch(self.epoch, self._group_batch())

    @property
    def micro_batches_per_step(self) -> int:
        """Micro-batches on each rank in a step of `samples_per_step`."""
        return self._parts_in(self._batches_now(), self.samples_per_step)

    @property
    def batches_per_epoch(self) -> int:
        """Steps of the whole current epoch, if the group stays as it is."""
        return self._batches_now().left(0)

    @property
    def batches_left(self) -> int:
        """Steps of this epoch that are still to come."""
        return self._batches_now().left(self.cursor)

    @property
    def ends_epoch(self) -> bool:
        """Whether the current step is the last one of its epoch."""
        return self.batches_left == 1

    @property
    def has_micro_batches(self) -> bool:
        """Whether the size of the group does not matter for the micro-batches."""
        return self.micro_batch_size is not None or bool(self._keeps)

    @property
    def has_own_order(self) -> bool:
        """Whether a Sampler gives the samples, so that epochs may differ in length."""
        return isinstance(self._order, SamplerOrder)

    @property
    def micro_batches_per_epoch(self) -> int:
        return self._micro_batches_from(0)

    @property
    def counted_samples(self) -> list[int]:
        return [part.samples for part in self._parts()]

    # --- the samples ---

    def __iter__(self) -> Iterator[list[int]]:
        self._look_at_group()
        if self._seed_random and self.data_parallel.mesh is not None:
            # Next, a DataLoader draws its workers' seed, which ranks with the same samples share.
            seed_all(mixed(self._seed, self.epoch, self.cursor, self._rank))
        self._micro = 0
        # A loader may iterate in a thread, so the ranks compare their orders at the first batch.
        self._iteration = Iteration(self._loads, lambda: self._order.compare(self.epoch))
        return self._share(self.epoch, self.cursor, self._iteration)

    def _share(self, epoch: int, begin: int, iteration: Iteration) -> Iterator[list[int]]:
        order, batches = self._order.of(epoch), self._batches_of(epoch)
        while begin < batches.samples:
            for part in self._parts_of(batches, begin):
                iteration.give(self._loads)
                yield order[part.begin : part.end].tolist()
            begin = batches.end(begin)

    def __len__(self) -> int:
        """Returns the number of micro-batches, not steps, that iterating gives this rank."""
        return self._micro_batches_from(self.cursor)

    def trains(self, device_type: str) -> None:
        """Limits the micro-batch on an accelerator, unless `keep_micro_batch` was given."""
        if self._keeps is None:
            self._keeps = device_type not in ("cpu", "meta")

    # --- the current micro-batch ---

    def _share_of_step(self) -> StepShare:
        end = self._batches_of(self.epoch).end(self.cursor)
        return StepShare(self.counted_samples, end - self.cursor, self._world_size)

    def _numbers_of_part(self) -> tuple[int, ...]:
        return self._seed, self.epoch, self._parts()[self._micro].begin

    def _parts(self) -> tuple[MicroBatch, ...]:
        return self._parts_of(self._batches_of(self.epoch), self.cursor)

    def _parts_of(self, batches: EpochBatches, begin: int) -> tuple[MicroBatch, ...]:
        end = batches.end(begin)
        return share_of_batch(
            begin,
            end,
            self._cut(batches, end - begin),
            rank=self._rank,
            world_size=self._world_size,
        )

    def _parts_in(self, batches: EpochBatches, batch_samples: int) -> int:
        return parts_each(
            batch_samples, self._cut(batches, batch_samples), world_size=self._world_size
        )

    def _cut(self, batches: EpochBatches, batch_samples: int) -> Cut:
        full_batch, shares = batches.full(batch_samples), self._world_size
        if self._keeps and self._per_worker_batch_size is None:
            shares = shares_within(full_batch, world_size=self._world_size, largest=self._largest)
        return Cut(self.micro_batch_size, shares, full_batch)

    # --- an epoch ---

    def _look_at_group(self) -> None:
        self._rank, self._world_size = self.data_parallel.place()
        self._largest = max(self._largest, self._world_size)

    def _group_batch(self) -> int:
        return self._batch_size or (self._per_worker_batch_size or 1) * self._world_size

    def _batches_now(self) -> EpochBatches:
        """Returns the current epoch's, in the current group."""
        self._look_at_group()
        return self._batches_of(self.epoch)

    def _batches_of(self, epoch: int) -> EpochBatches:
        samples, size = self._order.samples(epoch), self._group_batch()
        return EpochBatches(
            samples - samples % size if self._drop_last else samples, size, self._order.ends(epoch)
        )

    def _micro_batches_from(self, begin: int) -> int:
        batches = self._batches_now()
        return sum(
            count * self._parts_in(batches, size) for size, count in batches.sizes(begin).items()
        )


def _size(name: str, value: int | None) -> int | None:
    if value is not None and index(value) < 1:
        raise ValueError(f"{name} must be at least 1, not {value}")
    return None if value is None else index(value)
