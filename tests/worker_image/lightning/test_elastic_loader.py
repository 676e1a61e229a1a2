from types import ModuleType
from typing import Any

import pytest
import torch
from elastic_pytorch import ElasticSampler
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
)

from tests.worker_image.scripts.own_orders import OfEpoch

pytestmark = pytest.mark.torch

DATA = list(range(20))


@pytest.fixture
def loaders(small: ModuleType) -> ModuleType:
    from elastic_pytorch.lightning import elastic_loader

    return elastic_loader


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(DATA)


class OwnLoader(DataLoader[int]):
    """A loader whose arguments are not known."""


def test_stock_loader_is_made_again_with_the_batch_of_the_group(
    loaders: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    given = DataLoader(
        DATA, batch_size=3, shuffle=True, drop_last=True, collate_fn=tuple, timeout=1, num_workers=1
    )
    loader, sampler = loaders.with_elastic_sampler(given, batch_size=6, micro_batch_size=2)
    assert loader.batch_sampler is sampler
    assert (loader.collate_fn, loader.timeout, loader.num_workers) == (tuple, 1, 1)
    expected = ElasticSampler(DATA, 6, micro_batch_size=2, seed=7, drop_last=True)
    assert list(sampler) == list(expected)


def test_without_shuffling_the_order_stays(loaders: ModuleType) -> None:
    loader, _ = loaders.with_elastic_sampler(
        DataLoader(DATA, batch_size=3), batch_size=8, micro_batch_size=None
    )
    assert torch.cat(list(loader)).tolist() == DATA


def test_loader_with_an_elastic_sampler_is_taken_as_it_is(loaders: ModuleType) -> None:
    sampler = ElasticSampler(DATA, 6)
    loader = DataLoader(DATA, batch_sampler=sampler)
    assert loaders.with_elastic_sampler(loader, batch_size=None, micro_batch_size=None) == (
        loader,
        sampler,
    )


OWN_ORDER = ElasticSampler(DATA, 6, sampler=OfEpoch(lambda _: [0]))
OWN_BATCHES = ElasticSampler(DATA, batch_sampler=OfEpoch(lambda _: [[0]]))
OF_A_GROUP: Any = DistributedSampler(DATA, 2, 0)
BY_TORCH = BatchSampler(SequentialSampler(DATA), 3, drop_last=False)


@pytest.mark.parametrize(
    ("given", "batch_size", "message"),
    [
        ([1, 2], 6, "fit was given a list for training"),
        ({"a": DataLoader(DATA)}, 6, "fit was given a dict for training"),
        (DataLoader(DATA, batch_size=3), None, "of the whole group: the DataLoader's batch_size=3"),
        (DataLoader(DATA, batch_sampler=ElasticSampler(DATA, 6)), 6, "batch_size is given twice"),
        (DataLoader(DATA, batch_sampler=OWN_ORDER), None, "write the loop with elastic.steps"),
        (DataLoader(DATA, batch_sampler=OWN_BATCHES), None, "with elastic.steps"),
        (OwnLoader(DATA, batch_size=3), 6, "OwnLoader is not torch's DataLoader"),
        (DataLoader(DATA, batch_size=3, sampler=OF_A_GROUP), 6, "from a DistributedSampler, whose"),
        (DataLoader(DATA, batch_sampler=BY_TORCH), 6, "from a BatchSampler"),
        (DataLoader(Stream(), batch_size=3), 6, "from a _InfiniteConstantSampler"),
        (DataLoader(DATA, batch_size=None), 6, "give it a batch_size"),
    ],
)
def test_what_cannot_be_dealt_out_again_is_refused(
    loaders: ModuleType, given: Any, batch_size: int | None, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        loaders.with_elastic_sampler(given, batch_size=batch_size, micro_batch_size=None)


def test_length_is_that_of_the_epoch_and_iterating_gives_what_is_left(loaders: ModuleType) -> None:
    told: list[int] = []
    sampler = ElasticSampler(DATA, 6, micro_batch_size=2, shuffle=False)
    loader = loaders.ElasticLoader(DataLoader(DATA, batch_sampler=sampler), sampler, told.append)
    assert (len(loader), len(list(loader)), told) == (10, 10, [])
    sampler.load_state_dict(sampler.state_dict() | {"cursor": 12})
    batches = iter(loader)
    assert told == [], "Lightning makes an iterator before it sets its counters"
    assert (len(loader), torch.cat(list(batches)).tolist(), told) == (10, DATA[12:], [6])


@pytest.mark.parametrize(("epochs", "finished"), [(-1, False), (0, True), (1, False)])
def test_place_says_whether_all_epochs_are_done(
    loaders: ModuleType, epochs: int, finished: bool
) -> None:
    place = loaders.SamplerState(ElasticSampler(DATA, 6), epochs=epochs)
    assert place.finished is finished
