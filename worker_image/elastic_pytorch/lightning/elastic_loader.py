"""The batches of a DataLoader, dealt out to a group whose size changes."""

import os
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from elastic_pytorch.training.loaders import sampler_of
from elastic_pytorch.training.sampler import ElasticSampler


class ElasticLoader:
    """The loader that Lightning iterates: `len` is that of the epoch, iterating gives what is left.

    It is no DataLoader, so Lightning does not put a DistributedSampler into it.
    """

    def __init__(
        self, loader: DataLoader[Any], sampler: ElasticSampler, go_to_batch: Callable[[int], None]
    ) -> None:
        self.loader, self.sampler, self.dataset = loader, sampler, loader.dataset
        self._go_to_batch = go_to_batch

    def __len__(self) -> int:
        return self.sampler.micro_batches_per_epoch

    def __iter__(self) -> Iterator[Any]:
        done = len(self) - len(self.sampler)
        if done:
            self._go_to_batch(done)
        yield from self.loader


class SamplerState:
    """The sampler for a State that must not advance it, as the callback does for each batch."""

    def __init__(self, sampler: ElasticSampler, *, epochs: int) -> None:
        self._sampler, self._epochs = sampler, epochs

    def state_dict(self) -> dict[str, Any]:
        return self._sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sampler.load_state_dict(state)

    @property
    def finished(self) -> bool:
        return 0 <= self._epochs <= self._sampler.epoch


def with_elastic_sampler(
    given: Any, *, batch_size: int | None, micro_batch_size: int | None
) -> tuple[DataLoader[Any], ElasticSampler]:
    """Returns a DataLoader that takes its batches from an ElasticSampler, and the sampler.

    A DataLoader with torch's own samplers is made again, with `batch_size` for the whole group.
    Others raise a TypeError.
    """
    if not isinstance(given, DataLoader):
        raise TypeError(
            f"fit was given a {type(given).__name__} for training: "
            "an elastic job needs one DataLoader of a dataset with a length"
        )
    if isinstance(given.batch_sampler, ElasticSampler):
        sampler = sampler_of(given)
        if sampler.has_own_order:
            raise TypeError(
                "Lightning counts on epochs of one length, and with sampler= or batch_sampler= of "
                "an ElasticSampler they may differ: write the loop with elastic.steps"
            )
        if batch_size is not None or micro_batch_size is not None:
            raise ValueError(
                "batch_size is given twice: leave it out of elastic_pytorch.lightning.options, "
                "as the DataLoader has an ElasticSampler"
            )
        return given, sampler
    _check_order(given)
    if batch_size is None:
        raise ValueError(
            "give elastic_pytorch.lightning.options the batch_size of the whole group: "
            f"the DataLoader's batch_size={given.batch_size} is that of a device, "
            "and the number of devices changes"
        )
    if type(given) is not DataLoader:
        raise TypeError(
            f"{type(given).__name__} is not torch's DataLoader, so it is not made again: "
            "give it batch_sampler=ElasticSampler(...)"
        )
    sampler = ElasticSampler(
        given.dataset,  # type: ignore[arg-type] # one without a length is refused
        batch_size,
        micro_batch_size=micro_batch_size,
        shuffle=isinstance(given.sampler, RandomSampler),
        seed=int(os.environ.get("PL_GLOBAL_SEED", "0")),
        drop_last=given.drop_last,
    )
    arguments = {name: getattr(given, name) for name in KEPT_ARGUMENTS if hasattr(given, name)}
    return DataLoader(given.dataset, batch_sampler=sampler, **arguments), sampler


KEPT_ARGUMENTS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
)


def _check_order(loader: DataLoader[Any]) -> None:
    """Raises a TypeError unless an ElasticSampler can give the samples in the same order."""
    sampler, batch_sampler = loader.sampler, loader.batch_sampler
    shuffled = (
        isinstance(sampler, RandomSampler)
        and not sampler.replacement
        and len(sampler) == len(sampler.data_source)
    )
    if loader.batch_size is None or not (shuffled or isinstance(sampler, SequentialSampler)):
        name = type(batch_sampler if loader.batch_size is None else sampler).__name__
        raise TypeError(
            f"the DataLoader takes its samples from a {name}, whose order a group of another size "
            "cannot go on with: give it a batch_size and shuffle=True or False, "
            "or batch_sampler=ElasticSampler(...)"
        )
