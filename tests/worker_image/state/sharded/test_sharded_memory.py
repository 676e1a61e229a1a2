"""Sharded states in the memory of pods: what the pods that are left hold goes on, in a group of any size."""

from tests.worker_image.cpu_fsdp2 import fully_shard

# isort: split

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from torch import nn
from torch.optim import AdamW

from tests.worker_image.state.test_state_memory import pods, run_pods

pytestmark = [pytest.mark.process, pytest.mark.torch]


def build() -> tuple[nn.Module, AdamW]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return model, AdamW(model.parameters(), lr=0.05)


def outcome(model: nn.Module, optimizer: AdamW) -> list[float]:
    """All parameters and moments, whatever the group."""
    tensors = [*model.parameters(), *(each["exp_avg"] for each in optimizer.state.values())]
    return [number for tensor in tensors for number in tensor.full_tensor().flatten().tolist()]


def until_copied(state: ShardedState) -> None:
    """Lets time pass, as long steps do, until all ranks have copies of what was committed last, and may copy again."""
    assert state._peers is not None
    while not state._peers.may_copy:
        state._peers.ask()


def train(folder: Path | None, steps: int, copied: bool = True) -> tuple[int, list[list[float]]]:
    """Where it began, and what it has after each step, that one first."""
    os.environ["ELASTIC_PYTORCH_NODE"] = f"node-{dist.get_rank()}"
    model, optimizer = build()
    state = ShardedState(folder, every=1, model=model, optimizer=optimizer)
    begun = state.restore()
    outcomes = [outcome(model, optimizer)] if begun else [[]]
    while state.step < steps:
        generator = torch.Generator().manual_seed(state.step)
        (model(torch.randn(4, 5, generator=generator)).square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if copied:
            until_copied(state)
        state.commit()
        outcomes.append(outcome(model, optimizer))
    if copied:
        until_copied(state)
    return begun, outcomes


@pytest.mark.parametrize("lost", range(3))
def test_a_lost_pod_s_shards_come_from_the_pod_that_has_the_copy(lost: int) -> None:
    with pods(3) as servers:
        [(begun, undisturbed), *_] = run_pods(servers, 1, train, None, 12, False)
        assert begun == 0
    with pods(3) as servers:
        run_pods(servers, 1, train, None, 6)
        del servers[lost]
        for each, outcomes in run_pods(servers, 1, train, None, 12):
            assert each == 6
            torch.testing.assert_close(outcomes, undisturbed[each:])
