"""A sampler notices a second sharding of its batches, which no loader that reads ahead is."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from elastic_pytorch.training.sampler import ElasticSampler
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.torch

DATA = TensorDataset(torch.arange(80))
Wrapper = Callable[[Iterable[list[int]]], Iterable[list[int]]]


class EverySecond:
    """Deals batches to two ranks, as Accelerate's BatchSamplerShard without a batch_size."""

    def __init__(self, batches: Iterable[list[int]], rank: int = 0) -> None:
        self.batches, self.rank = batches, rank

    def __iter__(self) -> Iterator[list[int]]:
        mine: list[int] = []
        for number, batch in enumerate(self.batches):
            if number % 2 == self.rank:
                mine = batch
            if number % 2 == 1:
                yield mine


def steps(sampler: ElasticSampler, loader: Iterable[Any]) -> Iterator[int]:
    for number, _ in enumerate(loader):
        with sampler.part() as part:
            assert part.weight == 1
        if part.last:
            sampler.advance()
        yield number


def loader_of(sampler: Any, workers: int = 0) -> Iterable[Any]:
    return DataLoader(DATA, batch_sampler=sampler, num_workers=workers)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_a_second_sharding_is_noticed_at_the_second_part(workers: int) -> None:
    for rank in range(2):
        sampler = ElasticSampler(DATA, 4)
        done = steps(sampler, loader_of(EverySecond(sampler, rank), workers))
        assert next(done) == 0
        with pytest.raises(
            RuntimeError,
            match=r"uses number 2, of 3 handed on.*Accelerate's prepare.*use_distributed_sampler",
        ):
            next(done)


def test_a_batch_that_is_passed_over_or_used_twice_is_noticed() -> None:
    sampler = ElasticSampler(DATA, 4)
    batches = iter(sampler)
    next(batches)
    with sampler.part() as part:
        assert part.weight == 1
    sampler.advance()
    with pytest.raises(RuntimeError, match="uses number 2, of 1 given"), sampler.part():
        pass
    for _ in range(2):
        next(batches)
    with pytest.raises(RuntimeError, match="passed over without its part"), sampler.part():
        pass


def test_a_batch_whose_part_failed_may_be_tried_again() -> None:
    sampler = ElasticSampler(DATA, 4)
    for _ in sampler:
        with pytest.raises(MemoryError), sampler.part():
            raise MemoryError
        with sampler.part() as part:
            assert part.weight == 1
        sampler.advance()
    assert sampler.epoch == 1


class OneAhead:
    """Hands a batch on when it has the next, as loaders that copy ahead to a device do."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        ahead: list[Any] = []
        for batch in self.batches:
            ahead.append(batch)
            if len(ahead) == 2:
                yield ahead.pop(0)
        yield from ahead


class OfAThread:
    """A thread reads ahead, as far as it comes."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        ahead: queue.Queue[Any] = queue.Queue()
        may_go_on = threading.Semaphore(1)

        def read() -> None:
            for batch in self.batches:
                may_go_on.acquire()
                ahead.put(batch)
            ahead.put(None)

        reader = threading.Thread(target=read)
        reader.start()
        while (batch := ahead.get(timeout=60)) is not None:
            may_go_on.release(2)  # it gets further ahead with each
            yield batch
        reader.join()


@pytest.mark.parametrize(
    "ahead",
    [OneAhead, OfAThread, list, lambda batches: OneAhead(OneAhead(batches))],
    ids=["one ahead", "a thread", "all at once", "two ahead"],
)
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.process)])
def test_a_loader_may_read_ahead(ahead: Wrapper, workers: int) -> None:
    sampler = ElasticSampler(DATA, 3)
    for _ in sampler.epochs(2):
        assert len(list(steps(sampler, ahead(loader_of(sampler, workers))))) == 27
    assert sampler.epoch == 2


def test_an_epoch_may_be_left_and_gone_on_with() -> None:
    sampler = ElasticSampler(DATA, 4)
    loader = OneAhead(loader_of(sampler))
    for _ in range(10):
        taken = steps(sampler, loader)
        next(taken), next(taken)
    assert sampler.epoch == 1


def test_what_is_cut_up_again_by_its_attributes_has_none() -> None:
    """Lightning then refuses it, and names its option; Accelerate refuses or passes over."""
    sampler = ElasticSampler(DATA, 4)
    assert not hasattr(sampler, "batch_size")
    assert not hasattr(sampler, "drop_last")
