"""Sharded states in pods' memory: a group of any size goes on from what the pods left hold."""

from tests.worker_image.cpu_fsdp2 import FusedAdamW, fully_shard

# isort: split

import os
import threading
from collections import Counter
from pathlib import Path

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.optim import AdamW

from tests.worker_image.state.sharded.test_sharded_state import Place
from tests.worker_image.state.test_state_memory import pods, run_pods

pytestmark = [pytest.mark.process, pytest.mark.torch]


def build() -> tuple[nn.Module, AdamW]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return model, FusedAdamW(model.parameters(), lr=0.05)


def outcome(model: nn.Module, optimizer: AdamW) -> list[float]:
    """All parameters and moments, whatever the group."""
    tensors = [*model.parameters(), *(each["exp_avg"] for each in optimizer.state.values())]
    return [number for tensor in tensors for number in tensor.full_tensor().flatten().tolist()]


def until_copied(state: ShardedState) -> None:
    """Lets time pass until all ranks have copied the last commit, and may copy again."""
    assert state._peers is not None
    while not state._peers.may_copy:
        state._peers.agree_now()


def train(
    folder: Path | None, steps: int, copied: bool = True, flush_seconds: float = 600.0
) -> tuple[int, list[list[float]]]:
    """Where it began, and what it has after each step, that one first."""
    os.environ.setdefault("ELASTIC_PYTORCH_NODE", f"node-{dist.get_rank()}")
    model, optimizer = build()
    state = ShardedState(
        folder,
        ShardedState.Options(every=1, flush_seconds=flush_seconds),
        model=model,
        optimizer=optimizer,
    )
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
    assert flush_seconds or state.flush()
    return begun, outcomes


@pytest.mark.parametrize(
    "lost", [0, *(pytest.param(lost, marks=pytest.mark.long) for lost in (1, 2))]
)
def test_a_lost_pod_s_shards_come_from_the_pod_that_has_the_copy(lost: int) -> None:
    with pods(1) as servers:
        [(begun, undisturbed)] = run_pods(servers, 1, train, None, 12, False)
        assert begun == 0
    with pods(3) as servers:
        run_pods(servers, 1, train, None, 6)
        del servers[lost]
        for each, outcomes in run_pods(servers, 1, train, None, 12):
            assert each == 6
            torch.testing.assert_close(outcomes, undisturbed[each:])


def train_in_units(unit_replicas: int, steps: int) -> tuple[int, list[list[float]]]:
    os.environ |= {
        "ELASTIC_PYTORCH_UNIT_REPLICAS": str(unit_replicas),
        "ELASTIC_PYTORCH_NODE": "the same for all",
    }
    return train(None, steps)


@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_shards_of_a_whole_unit_are_in_another_one(lost: int) -> None:
    """A pod is lost, and the next group has no place for the others of its unit."""
    with pods(4) as servers:
        [(_, outcomes), *_] = run_pods(servers, 1, train_in_units, 2, 6)
        del servers[2 * lost : 2 * lost + 2]
        assert run_pods(servers, 1, train_in_units, 2, 6) == [(6, outcomes[6:])] * 2


@pytest.mark.parametrize("has_folder", [True, pytest.param(False, marks=pytest.mark.long)])
def test_two_pods_lost_at_once_cost_what_the_last_checkpoint_lacks(
    has_folder: bool, tmp_path: Path
) -> None:
    folder = tmp_path if has_folder else None
    with pods(3) as servers:
        [(_, undisturbed), *_] = run_pods(servers, 1, train, folder, 4, False, 0.0)
        run_pods(servers, 1, train, folder, 6)
        [(begun, outcomes)] = run_pods(servers[:1], 1, train, folder, 6, False)
    assert begun == (4 if has_folder else 0)
    torch.testing.assert_close(outcomes[0], undisturbed[begun])


def test_folder_that_takes_no_writes_meanwhile_does_not_end_the_training(tmp_path: Path) -> None:
    folder, whole = tmp_path / "checkpoints", tmp_path / "whole"
    whole.mkdir()
    folder.symlink_to(whole)
    with pods(2) as servers:
        [(_, outcomes), *_] = run_pods(servers, 1, train, folder, 6, True, 0.0)
        folder.unlink()
        folder.symlink_to("/proc/tty")  # can be listed, and takes no writes
        del servers[0]
        [(begun, after)] = run_pods(servers, 1, train, folder, 8, False)
        assert begun == 6
        torch.testing.assert_close(after[0], outcomes[6])


def train_replicated(
    steps: int, replicas: int, node: str = ""
) -> tuple[int, list[float], Counter[str]]:
    """Where a model sharded within replicas has begun, and what came out, on nodes by rank.

    Rank 0 alone counts its steps.
    """
    os.environ["ELASTIC_PYTORCH_NODE"] = node or f"node-{dist.get_rank()}"
    torch.manual_seed(0)
    mesh = init_device_mesh(
        "cpu", (replicas, dist.get_world_size() // replicas), mesh_dim_names=("replicate", "shard")
    )
    model = fully_shard(nn.Linear(5, 4), mesh=mesh)
    state = ShardedState(None, ShardedState.Options(every=1), model=model, counted=Counter())
    begun = state.restore()
    while state.step < steps:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
        if dist.get_rank() == 0:
            state.counted["steps"] += 1
        state.commit()
    assert state._peers is not None
    assert (state._peers._copies is None) == (replicas > 1 and not node)
    numbers = [
        number for each in model.parameters() for number in each.full_tensor().flatten().tolist()
    ]
    return begun, numbers, state.counted


def test_replica_on_another_node_takes_the_place_of_a_copy() -> None:
    with pods(4) as servers:
        [(_, wanted, _), *_] = run_pods(servers, 1, train_replicated, 9, 2)
    with pods(4) as servers:
        run_pods(servers, 1, train_replicated, 6, 2)
        del servers[0]
        assert run_pods(servers, 1, train_replicated, 9, 1) == [(6, wanted, Counter(steps=9))] * 3


def move(steps: int) -> tuple[int, list[int]]:
    """The step and the place that it has begun with; the place goes on by ten with each step."""
    os.environ["ELASTIC_PYTORCH_NODE"] = f"node-{dist.get_rank()}"
    place = Place()
    kept = elastic.PerRank(place, reshard=lambda states, rank, _: states[rank])
    state = ShardedState(
        None, ShardedState.Options(every=1), model=fully_shard(nn.Linear(5, 3)), place=kept
    )
    begun = state.restore(), place.place.tolist()
    while state.step < steps:
        place.place = place.place + 10
        until_copied(state)
        state.commit()
    until_copied(state)
    return begun


def test_what_each_rank_has_of_its_own_is_kept_by_groups_that_make_no_step() -> None:
    with pods(3) as servers:
        run_pods(servers, 1, move, 2)
        del servers[2]
        for _ in range(2):
            assert run_pods(servers, 1, move, 0) == [(2, [20] * 3), (2, [21] * 3)]


def put_together(steps: int) -> int:
    """Where a training has begun that evaluates its model before `restore`."""
    os.environ["ELASTIC_PYTORCH_NODE"] = f"node-{dist.get_rank()}"
    model = fully_shard(nn.Linear(5, 3), reshard_after_forward=False)
    with torch.no_grad():
        model(torch.ones(1, 5))
    state = ShardedState(None, ShardedState.Options(every=1), model=model)
    begun = state.restore()
    assert dist.get_world_size() == 1 or (
        state._peers is not None and state._peers._copies is not None
    )
    while state.step < steps:
        until_copied(state)
        state.commit()
        until_copied(state)
    return begun


def test_shards_of_a_model_that_is_put_together_just_now_are_copied() -> None:
    with pods(2) as servers:
        run_pods(servers, 1, put_together, 1)
        del servers[0]
        assert run_pods(servers, 1, put_together, 0) == [1]


def close_at_once() -> list[str]:
    """Closes a State whose copies are on their way; returns the threads that are left."""
    os.environ["ELASTIC_PYTORCH_NODE"] = f"node-{dist.get_rank()}"
    state = ShardedState(
        None, ShardedState.Options(every=1), model=fully_shard(nn.Linear(2048, 2048))
    )
    state.restore()
    state.close()
    return [thread.name for thread in threading.enumerate()]


def test_a_state_that_is_closed_copies_nothing_more() -> None:
    with pods(2) as servers:
        for threads in run_pods(servers, 1, close_at_once):
            assert "copies for peers" not in threads
