from tests.worker_image.cpu_fsdp2 import fully_shard

# isort: split

from pathlib import Path
from typing import Any

import pytest
import torch
from elastic_pytorch.state.sharded_state import ShardedState
from elastic_pytorch.storage.sharded_folder import sharded_checkpoints
from elastic_pytorch.training.sampler import ElasticSampler
from torch import nn
from torch.optim import AdamW

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


def train(folder: Path, steps: int, *, flushes: bool = False) -> tuple[int, int, float, list[int]]:
    """Where it began, where the sampler is at the end, the best loss that was known, and the steps that are on the disk."""
    torch.manual_seed(0)
    model = fully_shard(nn.Linear(5, 3))
    optimizer = AdamW(model.parameters())
    sampler = ElasticSampler(100, 5)
    state = ShardedState(folder, every=4, keep=9, model=model, optimizer=optimizer, sampler=sampler, best=9.0)
    begun = state.restore()
    best = state.best
    for batch in sampler:
        with sampler.part(model) as part:
            (part.weight * model(torch.ones(len(batch), 5)).square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        state.best = 1.5
        state.commit(loss=0.5)
        if state.step == steps:
            break
    if flushes:
        assert state.flush()
    return begun, sampler.cursor, best, sorted(version.step for version, _ in sharded_checkpoints(folder))


def run_to_ten_and_flush(folder: Path) -> Any:
    return train(folder, 10, flushes=True)


@pytest.mark.process
@pytest.mark.parametrize("backend", ["gloo", pytest.param("nccl", marks=pytest.mark.gpu)])
def test_every_so_many_steps_are_saved_and_the_last_ones_when_asked_for(tmp_path: Path, backend: str) -> None:
    assert set(map(repr, run_group(2, train, tmp_path, 6, backend=backend))) == {repr((0, 30, 9.0, [4]))}
    assert set(map(repr, run_group(3, run_to_ten_and_flush, tmp_path, backend=backend))) == {repr((4, 50, 1.5, [4, 8, 10]))}
    assert set(map(repr, run_group(1, train, tmp_path, 11, backend=backend))) == {repr((10, 55, 1.5, [4, 8, 10]))}


def test_without_a_group_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        ShardedState(tmp_path, every=4, model=nn.Linear(2, 2)).restore()
