"""The loader for torchtitan, by the interface that its Trainer and its checkpoints use."""

import sys
from importlib.util import find_spec

import pytest

from tests.paths import ROOT

if find_spec("torchtitan") is None:
    pytest.skip("needs torchtitan: pip install torchtitan", allow_module_level=True)
sys.path.append(str(ROOT / "examples" / "torchtitan"))

from collections import Counter
from itertools import islice
from typing import Any

import torch
from elastic_torchtitan import ElasticDataLoader, Sample
from torch.utils.data import IterableDataset
from torchtitan.components.dataloader import BaseDataLoader, ParallelAwareDataloader

pytestmark = [pytest.mark.torch, pytest.mark.long]

LENGTH = 50


class Numbers:
    def __init__(self, tokenizer: Any, seq_len: int) -> None:
        assert (tokenizer, seq_len) == ("tokenizer", 3)

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Sample:
        tokens = torch.full((3,), index)
        return {"input": tokens}, tokens


def loader(rank: int, world_size: int, size: int = 2, **config: Any) -> ElasticDataLoader:
    """As the Trainer builds it."""
    built = ElasticDataLoader.Config(samples=Numbers, **config).build(
        dp_world_size=world_size,
        dp_rank=rank,
        tokenizer="tokenizer",
        seq_len=3,
        local_batch_size=size,
        snapshot_every_n_steps=None,
    )
    assert isinstance(built, BaseDataLoader)
    return built


def take(group: list[ElasticDataLoader], micro_batches: int) -> list[int]:
    taken = []
    for rank in group:
        for inputs, labels in islice(rank, micro_batches):
            assert inputs["input"].shape == labels.shape
            taken += labels[:, 0].tolist()
    return taken


@pytest.mark.parametrize("workers", [0, 1], ids=["in this process", "in a process"])
def test_each_sample_comes_once_an_epoch_through_changes_of_the_degree(workers: int) -> None:
    seen: Counter[int] = Counter()
    state: dict[str, Any] = {}
    # 16, 24, 10 and 48 samples: the last is of two epochs
    for world_size, micro_batches in ((2, 4), (4, 3), (1, 5), (3, 8)):
        group = [
            loader(rank, world_size, seed=3, num_workers=workers) for rank in range(world_size)
        ]
        for rank in group:
            rank.load_state_dict(state)
        seen.update(take(group, micro_batches))
        states = [rank.state_dict() for rank in group]
        assert all(each == states[0] for each in states), (
            "any rank may save it, and any may load it"
        )
        state = states[0]
    assert state["samples_taken"] == 98
    assert sorted(seen.values()) == [1] * 2 + [2] * 48


def test_a_step_takes_the_same_samples_whatever_the_degree() -> None:
    steps = [
        sorted(take([loader(rank, size) for rank in range(size)], 12 // 2 // size))
        for size in (1, 2, 3, 6)
    ]
    assert all(step == steps[0] for step in steps)
    assert steps[0] != list(range(12)), "shuffled"
    assert take([loader(0, 1, shuffle=False)], 3) == list(range(6))


def test_what_a_loader_has_read_ahead_comes_again() -> None:
    first = loader(0, 1, num_workers=1)
    taken = take([first], 3)
    second = loader(0, 1)
    second.load_state_dict(first.state_dict())
    assert sorted(taken + take([second], 22)) == list(range(LENGTH))


def test_a_place_in_another_order_is_refused() -> None:
    state = loader(0, 1, seed=1).state_dict()
    with pytest.raises(ValueError, match="seed was 1 and is 2 now"):
        loader(0, 1, seed=2).load_state_dict(state)
    with pytest.raises(ValueError, match="needs samples"):
        ElasticDataLoader.Config().build(
            dp_world_size=1, dp_rank=0, tokenizer=None, seq_len=3, local_batch_size=1
        )


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(LENGTH))


def test_the_loader_that_torchtitan_has_refuses_another_degree() -> None:
    state = ParallelAwareDataloader(Stream(), dp_rank=0, dp_world_size=2).state_dict()
    with pytest.raises(AssertionError, match="dp_degree is inconsistent"):
        ParallelAwareDataloader(Stream(), dp_rank=0, dp_world_size=4).load_state_dict(state)
