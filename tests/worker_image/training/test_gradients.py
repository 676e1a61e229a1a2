"""Gradients and dropout's numbers of a real group's step are the same for every world size."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.training.sampler import ElasticSampler
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from tests.torch_features import needs_fsdp2
from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch

SAMPLES, BATCH = 17, 7  # the third step has three samples: fewer than the largest group has ranks


@dataclass
class Seen:
    """A rank's epoch: gradients by step, and each micro-batch's numbers by first sample."""

    gradients: list[list[Tensor]] = field(default_factory=list)
    drawn: dict[int, Tensor] = field(default_factory=dict)


def train_an_epoch(
    micro_batch_size: int | None, *, sharded: bool = False, keeps: bool = False
) -> Seen:
    torch.manual_seed(1)
    data = TensorDataset(
        torch.randn(SAMPLES, 5, dtype=torch.float64), torch.randn(SAMPLES, 1, dtype=torch.float64)
    )
    # Dropout draws numbers for a micro-batch: where that depends on the world size, it has to be
    # left out to compare.
    dropout = nn.Dropout(0.5 if micro_batch_size else 0.0)
    layers = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), dropout, nn.Linear(8, 1)).double()
    model: Any
    if sharded:
        from torch.distributed.fsdp import fully_shard

        model = fully_shard(layers)
    else:
        model = DistributedDataParallel(layers)
    sampler = ElasticSampler(
        data, BATCH, micro_batch_size=micro_batch_size, seed=2, keep_micro_batch=keeps
    )
    sampler.load_state_dict({**sampler.state_dict(), "largest_group": 4})
    seen = Seen()
    torch.manual_seed(dist.get_rank())
    for _ in sampler.epochs(1):
        batches = list(sampler)
        for batch, (inputs, targets) in zip(
            batches, DataLoader(data, batch_sampler=sampler), strict=True
        ):
            with sampler.part(model) as part:
                if part.samples:
                    seen.drawn[batch[0]] = torch.rand(3)
                (part.weight * nn.functional.mse_loss(model(inputs), targets)).backward()
            if part.last:
                seen.gradients.append([whole(parameter.grad) for parameter in model.parameters()])
                model.zero_grad()
                sampler.advance()
    return seen


def whole(gradient: Tensor) -> Tensor:
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient.clone()


def all_ways() -> tuple[Seen, Seen, Seen]:
    return train_an_epoch(None), train_an_epoch(2), train_an_epoch(None, keeps=True)


def sharded() -> tuple[Seen, Seen]:
    return train_an_epoch(2, sharded=True), train_an_epoch(None, sharded=True, keeps=True)


WORLD_SIZES = pytest.mark.parametrize(
    "world_sizes", [(2, 5), pytest.param((1, 3), marks=pytest.mark.long)], ids=str
)


@pytest.mark.process
@WORLD_SIZES
def test_gradients_and_randomness_do_not_depend_on_the_world_size(
    world_sizes: tuple[int, ...],
) -> None:
    ((at_once, in_parts, _),) = run_group(1, all_ways)
    assert (len(at_once.gradients), len(in_parts.drawn)) == (3, 10)
    for world_size in world_sizes:
        ranks = run_group(world_size, all_ways)
        for rank in ranks:
            for without_dropout in (rank[0], rank[2]):
                torch.testing.assert_close(
                    without_dropout.gradients, at_once.gradients, rtol=1e-10, atol=1e-12
                )
            torch.testing.assert_close(
                rank[1].gradients, in_parts.gradients, rtol=1e-10, atol=1e-12
            )
        drawn = {first: numbers for rank in ranks for first, numbers in rank[1].drawn.items()}
        assert drawn.keys() == in_parts.drawn.keys()
        assert all(torch.equal(drawn[first], numbers) for first, numbers in in_parts.drawn.items())


@needs_fsdp2
@pytest.mark.process
@WORLD_SIZES
def test_gradients_of_a_sharded_model_are_those_of_a_whole_one(
    world_sizes: tuple[int, ...],
) -> None:
    ((at_once, in_parts, _),) = run_group(1, all_ways)
    for world_size in world_sizes:
        for parts, kept in run_group(world_size, sharded):
            torch.testing.assert_close(parts.gradients, in_parts.gradients, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(kept.gradients, at_once.gradients, rtol=1e-10, atol=1e-12)


def sums_of_a_sharded_model() -> list[tuple[bool, bool]]:
    """Whether each micro-batch ends its step, and whether gradients are summed after it."""
    from torch.distributed.fsdp import fully_shard

    data = TensorDataset(torch.randn(SAMPLES, 5), torch.randn(SAMPLES, 1))
    model: Any = fully_shard(nn.Linear(5, 1))
    sampler = ElasticSampler(data, BATCH, micro_batch_size=2, seed=2)
    seen = []
    for inputs, targets in DataLoader(data, batch_sampler=sampler):
        with sampler.part(model) as part:
            (part.weight * nn.functional.mse_loss(model(inputs), targets)).backward()
        seen.append(
            (part.last, all(parameter.grad is not None for parameter in model.parameters()))
        )
        if part.last:
            model.zero_grad()
            sampler.advance()
    return seen


@needs_fsdp2
@pytest.mark.process
def test_gradients_of_a_sharded_model_are_summed_up_once_a_step() -> None:
    for seen in run_group(2, sums_of_a_sharded_model):
        assert len(seen) > sum(last for last, _ in seen) == 3
        assert all(last is summed for last, summed in seen)
