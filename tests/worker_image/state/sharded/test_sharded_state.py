from tests.worker_image.cpu_fsdp2 import fully_shard

# isort: split

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from elastic_pytorch.state.values.per_rank import PerRank
from elastic_pytorch.storage.checkpoint_folder import by_name
from elastic_pytorch.storage.checkpoint_format import SHARDED
from elastic_pytorch.training.sampler import ElasticSampler
from torch import nn
from torch.optim import AdamW

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


def train(folder: Path, steps: int, flushes: bool = False) -> tuple[int, int, float, list[int]]:
    torch.manual_seed(0)
    model = fully_shard(nn.Linear(5, 3))
    optimizer = AdamW(model.parameters())
    sampler = ElasticSampler(100, 5)
    state = ShardedState(
        folder,
        ShardedState.Options(every=4, memory=False, keep=9),
        model=model,
        optimizer=optimizer,
        sampler=sampler,
        best=9.0,
    )
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
    return (
        begun,
        sampler.cursor,
        best,
        sorted(version.step for version, _ in by_name(folder, SHARDED)),
    )


@pytest.mark.process
@pytest.mark.parametrize("backend", ["gloo", pytest.param("nccl", marks=pytest.mark.gpu)])
def test_every_so_many_steps_are_saved_and_the_last_ones_when_asked_for(
    tmp_path: Path, backend: str
) -> None:
    assert set(map(repr, run_group(2, train, tmp_path, 6, backend=backend))) == {
        repr((0, 30, 9.0, [4]))
    }
    assert set(map(repr, run_group(3, train, tmp_path, 10, True, backend=backend))) == {
        repr((4, 50, 1.5, [4, 8, 10]))
    }
    assert set(map(repr, run_group(1, train, tmp_path, 11, backend=backend))) == {
        repr((10, 55, 1.5, [4, 8, 10]))
    }


def leave_early(folder: Path) -> list[int]:
    """Three steps, of which nothing says that they are the last ones; then the group's end."""
    state = ShardedState(
        folder, ShardedState.Options(every=None), model=fully_shard(nn.Linear(5, 3))
    )
    state.restore()
    for _ in range(3):
        state.commit()
    dist.destroy_process_group()
    return sorted(version.step for version, _ in by_name(folder, SHARDED))


@pytest.mark.process
def test_steps_that_no_checkpoint_has_are_saved_before_the_group_is_destroyed(
    tmp_path: Path,
) -> None:
    assert run_group(2, leave_early, tmp_path) == [[3]] * 2


def fail_at_the_end(folder: Path) -> str:
    """What would be told at the end of a process whose group is destroyed because of an error."""
    state = ShardedState(
        folder, ShardedState.Options(every=None), model=fully_shard(nn.Linear(5, 3))
    )
    state.restore()
    state.commit()
    try:
        raise ValueError
    except ValueError:
        dist.destroy_process_group()
    return state._unsaved()


@pytest.mark.process
def test_steps_that_cannot_be_saved_any_more_are_told(tmp_path: Path) -> None:
    for told in run_group(2, fail_at_the_end, tmp_path):
        assert told.startswith("steps 1 to 1 are not saved: call flush() on all ranks")


def test_without_a_group_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        ShardedState(
            tmp_path, ShardedState.Options(every=4, memory=False), model=nn.Linear(2, 2)
        ).restore()


class Place:
    def __init__(self) -> None:
        self.place = torch.full((3,), dist.get_rank())

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


def move(folder: Path, by_rank: bool = True) -> list[int] | str:
    torch.manual_seed(0)
    place = Place()
    kept = PerRank(place) if by_rank else place
    state = ShardedState(
        folder,
        ShardedState.Options(every=2, memory=False, total_steps=9),
        model=fully_shard(nn.Linear(5, 3)),
        place=kept,
    )
    try:
        state.restore()
    except RuntimeError as error:
        return str(error)
    for _ in range(3):
        place.place = place.place + 10
        state.commit()
    assert state.flush()
    return place.place.tolist()


@pytest.mark.process
def test_what_each_rank_has_of_its_own_is_kept_by_rank_or_refused(tmp_path: Path) -> None:
    assert run_group(2, move, tmp_path) == [[30] * 3, [31] * 3]
    assert run_group(2, move, tmp_path) == [[60] * 3, [61] * 3]
    assert all(
        "does not fit the place of this script: 2 ranks have each committed a state of their own"
        in refusal
        for refusal in run_group(1, move, tmp_path)
    )
    assert all(
        "PerRank(place)" in refusal for refusal in run_group(2, move, tmp_path / "other", False)
    )


def move_to_the_end(folder: Path) -> list[int]:
    """Saves nothing before the last step: checkpoints are ten minutes apart."""
    place = Place()
    model = fully_shard(nn.Linear(5, 3))
    state = ShardedState(
        folder, ShardedState.Options(memory=False, total_steps=3), model=model, place=PerRank(place)
    )
    state.restore()
    while state.step < 3:
        place.place = place.place + 10
        state.commit()
    return place.place.tolist()


@pytest.mark.process
def test_the_last_checkpoint_has_what_each_rank_has_of_its_own_by_then(tmp_path: Path) -> None:
    assert run_group(2, move_to_the_end, tmp_path) == [[30] * 3, [31] * 3]
    assert run_group(2, move_to_the_end, tmp_path) == [[30] * 3, [31] * 3]


def fill_if_new(folder: Path, value: float) -> tuple[int, float]:
    """Fills the weights if `restore` finds no step, and counts a step.

    Returns what it found, and the weights.
    """
    model = fully_shard(nn.Linear(5, 3))
    state = ShardedState(
        folder,
        ShardedState.Options(every=1, memory=False),
        model=model,
        optimizer=AdamW(model.parameters()),
    )
    if (found := state.restore()) == 0:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(value)
    state.commit()
    return found, float(model.weight.full_tensor().mean())


@pytest.mark.process
def test_weights_are_filled_after_restore_and_only_in_the_first_group(tmp_path: Path) -> None:
    assert run_group(2, fill_if_new, tmp_path, 3.0) == [(0, 3.0)] * 2
    assert run_group(3, fill_if_new, tmp_path, 7.0) == [(1, 3.0)] * 3


class Average:
    """An average of the weights as scripts have it: torch's own takes no sharded model."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: each.detach().clone() for name, each in model.named_parameters()}

    def update(self, model: nn.Module) -> None:
        for name, each in model.named_parameters():
            self.shadow[name].lerp_(each.detach(), 0.5)

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.shadow}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shadow = state["shadow"]


def average(folder: Path, until: int) -> tuple[int, torch.Tensor]:
    torch.manual_seed(1)
    model = fully_shard(nn.Linear(5, 3))
    averaged = Average(model)
    state = ShardedState(
        folder, ShardedState.Options(every=2, memory=False), model=model, averaged=averaged
    )
    begun = state.restore()
    while state.step < until:
        with torch.no_grad():
            model.weight.add_(1.0)
        averaged.update(model)
        state.commit()
    state.flush()
    return begun, averaged.shadow["weight"].full_tensor()


@pytest.mark.process
def test_average_of_shards_is_kept(tmp_path: Path) -> None:
    [(_, undisturbed)] = run_group(1, average, tmp_path / "undisturbed", 6)
    run_group(2, average, tmp_path / "run", 4)
    for begun, averaged in run_group(3, average, tmp_path / "run", 6):
        assert begun == 4
        torch.testing.assert_close(averaged, undisturbed)


def restore_closed(folder: Path) -> str:
    state = ShardedState(folder, model=fully_shard(nn.Linear(5, 3)))
    state.restore()
    state.close()
    ShardedState(folder, model=fully_shard(nn.Linear(5, 3))).restore()  # it has the folder now
    with pytest.raises(RuntimeError, match="this State is closed") as refused:
        state.restore()
    return str(refused.value)


@pytest.mark.process
def test_closed_state_is_not_restored_beside_the_one_that_goes_on(tmp_path: Path) -> None:
    assert run_group(1, restore_closed, tmp_path)
