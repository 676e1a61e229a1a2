"""State is of the kind that is registered: sharded models are kept by their ranks together."""

from tests.worker_image.cpu_fsdp2 import DTensor, fully_shard

# isort: split

from pathlib import Path

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from elastic_pytorch.state.state import State
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.optim import AdamW

from tests.torch_features import needs_averages
from tests.worker_image.state.sharded.test_sharded_state import Place
from tests.worker_image.state.test_state_memory import pods, run_pods
from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


def train(folder: Path | None, steps: int, frozen: bool) -> tuple[str, int, list[float], list[int]]:
    """The kind, where it began, and the weights, moments and the rank's own state in the end."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    model[0].requires_grad_(not frozen)
    fully_shard(model)
    optimizer = AdamW(
        (each for each in model.parameters() if each.requires_grad), lr=0.05
    )  # it has no state before its first step
    place = Place()
    kept = {
        "model": elastic.Trained(model) if frozen else model,
        "place": elastic.PerRank(place, reshard=lambda states, *_: states[0]),
    }
    state = elastic.State(
        folder,
        elastic.State.Options(every=1, total_steps=steps),
        optimizer=optimizer,
        best=0.0,
        **kept,
    )
    begun = state.restore()
    while state.step < steps:
        model(torch.ones(2, 5)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        place.place = place.place + 10
        state.best = float(state.step)
        state.commit()
    assert not begun or state.best == steps - 1
    tensors = [*model.parameters(), *(each["exp_avg"] for each in optimizer.state.values())]
    return (
        type(state).__name__,
        begun,
        [x for each in tensors for x in each.full_tensor().flatten().tolist()],
        place.place.tolist(),
    )


@pytest.mark.process
@needs_averages
@pytest.mark.parametrize("frozen", [False, pytest.param(True, marks=pytest.mark.long)])
def test_state_keeps_a_sharded_model_in_memory_and_on_the_disk_for_any_size(
    frozen: bool, tmp_path: Path
) -> None:
    wanted = run_group(1, train, tmp_path / "undisturbed", 6, frozen)[0][2]
    with pods(2) as servers, pods(1) as new:
        run_pods(servers, 1, train, None, 3, frozen)
        from_memory = run_pods([*servers, *new], 1, train, None, 6, frozen)
    run_group(2, train, tmp_path, 3, frozen)
    from_disk = run_group(3, train, tmp_path, 6, frozen)
    for kind, begun, outcome, _ in (*from_memory, *from_disk):
        assert (kind, begun) == ("ShardedState", 3)
        torch.testing.assert_close(outcome, wanted)
    assert [place for *_, place in from_disk] == [[60] * 3] * 3


def kinds() -> dict[str, str]:
    model = fully_shard(nn.Linear(5, 3))
    plain = nn.Linear(5, 3)
    together = fully_shard(nn.Linear(5, 3), reshard_after_forward=False)
    with torch.no_grad():
        together(torch.ones(1, 5))
    return {
        "of a model that is put together": type(elastic.State(None, model=together)).__name__,
        "of a model": type(elastic.State(None, model=model)).__name__,
        "of its optimizer": type(elastic.State(None, optimizer=AdamW(model.parameters()))).__name__,
        "of one model of two": type(elastic.State(None, first=plain, second=model)).__name__,
        "of a whole model": type(
            elastic.State(None, model=plain, optimizer=AdamW(plain.parameters()), best=1)
        ).__name__,
        "asked for": type(ShardedState(None, model=plain)).__name__,
    }


@pytest.mark.process
def test_state_is_of_the_kind_that_fits() -> None:
    assert run_group(1, kinds) == [
        {
            "of a model that is put together": "ShardedState",
            "of a model": "ShardedState",
            "of its optimizer": "ShardedState",
            "of one model of two": "ShardedState",
            "of a whole model": "State",
            "asked for": "ShardedState",
        }
    ]


def refusals() -> list[str]:
    model = nn.Linear(5, 3)
    early = State(None, model=model)
    fully_shard(model)
    told = []
    with pytest.raises(RuntimeError) as refused:
        early.restore()
    told.append(str(refused.value))
    for arguments in ({"overlap": True}, {"initial": print}):
        with pytest.raises(ValueError, match="") as wrong:
            elastic.State(None, elastic.State.Options(**arguments), model=model)
        told.append(str(wrong.value))
    return told


@pytest.mark.process
def test_what_a_sharded_model_cannot_have_is_refused_by_name() -> None:
    [(early, overlap, initial)] = run_group(1, refusals)
    assert early == "model is sharded, so no rank has all of it: shard it before State is made"
    assert overlap.startswith("overlap is for models that each rank has as a whole")
    assert "takes no initial" in initial and "if state.restore() == 0: load(model)" in initial


def restore_unlike_kinds() -> str:
    mesh = init_device_mesh("cpu", (2,))
    model = nn.Linear(5, 4)
    if dist.get_rank() == 0:
        model.weight = nn.Parameter(
            DTensor.from_local(torch.ones(2, 5), mesh, [Shard(0)], run_check=False)
        )
    with pytest.raises(RuntimeError) as refused:
        elastic.State(None, model=model).restore()
    return str(refused.value)


@pytest.mark.process
def test_ranks_of_different_kinds_are_refused() -> None:
    [first, second] = run_group(2, restore_unlike_kinds)
    assert first == second
    assert first.startswith(
        "rank 1 has something else registered than rank 0: only that rank has model.weight"
    )


def test_what_a_whole_model_cannot_have_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="memory=False is for sharded models"):
        elastic.State(None, elastic.State.Options(memory=False), model=nn.Linear(2, 2))


def seconds_between_checkpoints() -> list[float]:
    model, plain = fully_shard(nn.Linear(5, 3)), nn.Linear(5, 3)
    return [
        elastic.State(None, elastic.State.Options(flush_seconds=seconds), model=each)._flush_seconds
        for each in (plain, model)
        for seconds in (None, 7.0)
    ]


@pytest.mark.process
def test_checkpoints_of_sharded_models_are_further_apart() -> None:
    assert run_group(1, seconds_between_checkpoints) == [[5.0, 7.0, 600.0, 7.0]]
