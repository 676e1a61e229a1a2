"""Of a model with frozen weights, only what is trained is kept; others are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.values.trained import describe
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


def adapted_model(base_seed: int = 0, trained_seed: int = 1) -> nn.Sequential:
    """A frozen layer with a buffer behind it, and two layers that are trained."""
    torch.manual_seed(base_seed)
    base = nn.Linear(8, 8)
    torch.manual_seed(trained_seed)
    model = nn.Sequential(base, nn.BatchNorm1d(8), nn.Linear(8, 1))
    base.requires_grad_(False)
    return model


def train_to(
    folder: Path, last_step: int, model: nn.Module, wrap: Callable[[nn.Module], nn.Module]
) -> dict[str, torch.Tensor]:
    optimizer = torch.optim.AdamW(each for each in model.parameters() if each.requires_grad)
    state = elastic.State(
        folder, elastic.State.Options(every=1), model=elastic.Trained(model), optimizer=optimizer
    )
    step = state.restore()
    wrapped = wrap(model)
    assert state._holds(torch.compile(wrapped, backend="eager"))
    while step < last_step:
        torch.manual_seed(100 + step)
        wrapped(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        state.commit()
        step = state.step
    state.close()
    return {name: each.detach().clone() for name, each in model.state_dict().items()}


def train_twice(folder: Path) -> bool:
    """Whether 20 steps of two processes end as one's do; each begins with other weights."""

    def wrap(model: nn.Module) -> nn.Module:
        return DistributedDataParallel(model) if dist.is_initialized() else model

    rank = dist.get_rank() if dist.is_initialized() else 0
    whole = train_to(folder / "whole", 20, adapted_model(trained_seed=rank), wrap)
    train_to(folder / "parts", 9, adapted_model(trained_seed=rank), wrap)
    parts = train_to(folder / "parts", 20, adapted_model(trained_seed=50 + rank), wrap)
    return all(torch.equal(whole[name], parts[name]) for name in whole) and len(whole) == len(parts)


def test_a_restart_changes_nothing_and_no_file_has_the_frozen_weights(tmp_path: Path) -> None:
    assert train_twice(tmp_path)
    frozen = adapted_model()[0].weight.detach().numpy().tobytes()
    written = list(tmp_path.rglob("*.elastic"))
    assert written
    assert not [file for file in written if frozen in file.read_bytes()]


@pytest.mark.process
def test_a_restart_of_a_group_changes_nothing(tmp_path: Path) -> None:
    assert run_group(2, train_twice, tmp_path) == [True, True]


def begin(folder: Path, model: nn.Module) -> elastic.State:
    state = elastic.State(folder, elastic.State.Options(every=1), model=elastic.Trained(model))
    try:
        state.restore()
    except RuntimeError:
        state.close()
        raise
    return state


def test_other_frozen_weights_are_refused_by_name(tmp_path: Path) -> None:
    begin(tmp_path, adapted_model()).close()
    with pytest.raises(
        RuntimeError,
        match=r"does not fit the model of this script: the frozen 0\.weight is float32 \[8, 8\] #",
    ):
        begin(tmp_path, adapted_model(base_seed=7))
    larger = nn.Sequential(nn.Linear(8, 9), nn.BatchNorm1d(9), nn.Linear(9, 1))
    larger[0].requires_grad_(False)
    with pytest.raises(RuntimeError, match=r"0\.weight is float32 \[9, 8\]"):
        begin(tmp_path, larger)
    begin(tmp_path, adapted_model()).close()


def base_of_rank(folder: Path) -> str:
    try:
        begin(folder, adapted_model(base_seed=dist.get_rank()))
    except RuntimeError as error:
        return str(error)
    return "" if dist.get_rank() == 0 else "not refused"


@pytest.mark.process
def test_ranks_with_other_frozen_weights_are_refused(tmp_path: Path) -> None:
    assert "the frozen 0.weight" in run_group(2, base_of_rank, tmp_path)[1]


def test_another_set_of_parameters_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, adapted_model()).close()
    with pytest.raises(RuntimeError, match=r"3\.weight is not in it"):
        begin(tmp_path, nn.Sequential(*adapted_model(), nn.Linear(1, 1)))
    with pytest.raises(RuntimeError, match=r"it has 2\.weight, and the model does not"):
        begin(tmp_path, adapted_model()[:2])


def test_what_was_committed_as_a_whole_is_refused(tmp_path: Path) -> None:
    state = elastic.State(tmp_path, model=adapted_model())
    state.restore()
    state.close()
    with pytest.raises(RuntimeError, match="committed as a whole: register the model itself"):
        begin(tmp_path, adapted_model())


def by_torch(weight: nn.Parameter) -> None:
    with torch.no_grad():
        weight.mul_(2)


def by_data(weight: nn.Parameter) -> None:
    weight.data.mul_(2)


def by_assignment(weight: nn.Parameter) -> None:
    weight.data = weight.data * 2


def by_numpy(weight: nn.Parameter) -> None:
    weight.detach().numpy()[:] *= 2


def test_a_frozen_weight_that_is_written_to_is_kept(tmp_path: Path) -> None:
    for number, write in enumerate((by_torch, by_data, by_assignment, by_numpy)):
        folder, model = tmp_path / str(number), adapted_model()
        state = begin(folder, model)
        write(model[0].weight)  # before the first commit of the group: each way is seen
        state.commit()
        state.close()
        again = adapted_model()
        begin(folder, again).close()
        assert torch.equal(again[0].weight, model[0].weight), write.__name__


def test_later_writes_are_seen_as_far_as_torch_counts_them(tmp_path: Path) -> None:
    seen = []
    for write in (by_torch, by_assignment, by_data, by_numpy):
        model = adapted_model()
        state = begin(tmp_path / write.__name__, model)
        state.commit()
        write(model[0].weight)
        seen.append("0.weight" in state._objects["model"].state_dict()["trained"])
        state.close()
    assert seen == [True, True, False, False]


def test_weights_that_are_frozen_later_or_trained_later_are_kept(tmp_path: Path) -> None:
    model = adapted_model()
    state = begin(tmp_path, model)
    model[0].requires_grad_(True)
    by_data(model[0].weight)
    state.commit()
    model.requires_grad_(False)
    by_data(model[2].weight)
    state.commit()
    state.close()
    again = adapted_model()
    begin(tmp_path, again).close()
    for name, each in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], each), name


def test_weights_may_be_read_after_restore(tmp_path: Path) -> None:
    pretrained = adapted_model(base_seed=5).state_dict()
    model = adapted_model(base_seed=6)
    state = begin(tmp_path, model)
    model.load_state_dict(pretrained)
    state.commit()
    state.close()
    again = adapted_model(base_seed=6)
    state = begin(tmp_path, again)
    assert state.step == 1
    assert torch.equal(again[0].weight, pretrained["0.weight"])
    state.close()


@pytest.mark.parametrize(
    ("model", "error", "why"),
    [
        ({}, TypeError, "takes a model"),
        (
            nn.Linear(1, 1).requires_grad_(False),
            ValueError,
            "no parameter of this model requires gradients",
        ),
        (nn.LazyLinear(1), ValueError, "load them first"),
        (nn.Linear(1, 1, device="meta"), ValueError, "load them first"),
    ],
)
def test_what_has_no_trained_part_is_refused(model: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        elastic.Trained(model)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64]
)
def test_a_checksum_sees_each_element_its_place_and_its_type(dtype: torch.dtype) -> None:
    values = torch.randint(0, 100, (300, 60), generator=torch.Generator().manual_seed(1)).gt(
        50 if dtype is torch.bool else -1
    )
    values = (
        values
        if dtype is torch.bool
        else torch.arange(18000).reshape(300, 60).remainder(120).to(dtype)
    )
    values[0, 0] = 0
    changed = [
        values.flip(0),
        values.flatten(),
        values.t(),
        values.to(torch.uint8 if dtype is torch.bool else torch.bool),
    ]
    for place in range(0, 18000, 601):
        other = values.clone()
        other.view(-1)[place] = other.view(-1)[place] == 0
        changed.append(other)
    assert len({describe(values), *map(describe, changed)}) == 1 + len(changed)
    assert describe(values.t().contiguous().t()) == describe(values)


def test_a_checksum_takes_tensors_of_any_place_and_size() -> None:
    odd = torch.arange(9000, dtype=torch.int64).to(torch.int8)
    assert describe(odd[1:]) == describe(odd[1:].clone())
    assert describe(torch.empty(0, 3)).startswith("float32 [0, 3] #")
    assert describe(torch.tensor(2.0)) != describe(torch.tensor(3.0))
