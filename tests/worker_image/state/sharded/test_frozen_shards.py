"""Of a sharded model with frozen weights, only what is trained is kept, for groups of any size."""

from tests.worker_image.cpu_fsdp2 import DTensor, FusedAdamW, fully_shard

# isort: split

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.sharded.frozen_shards import Seen, checksums, part_sum
from elastic_pytorch.state.sharded.regions import Region
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.optim import AdamW

from tests.worker_image.state.test_state_memory import pods, run_pods
from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex64]


def filled(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    numbers = torch.randint(1, 100, shape, generator=torch.Generator().manual_seed(1))
    return numbers.gt(50) if dtype is torch.bool else numbers.to(dtype)


@pytest.mark.parametrize("shape", [(), (7,), (9, 5), (4, 1, 6)])
def test_a_checksum_is_the_same_however_a_tensor_is_cut(shape: tuple[int, ...]) -> None:
    for dtype in DTYPES:
        check_cuts(dtype, shape)


def check_cuts(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    whole = filled(dtype, *shape)
    wanted = part_sum(whole, [0] * len(shape))
    for dimension, size in enumerate(shape):
        for cut in range(size + 1):
            first, second = whole.split([cut, size - cut], dimension)
            offset = [cut if each == dimension else 0 for each in range(len(shape))]
            found = part_sum(first, [0] * len(shape)) + part_sum(second, offset)
            assert found % 2**64 == wanted, f"{dtype}, cut at {cut} of dimension {dimension}"


@pytest.mark.parametrize("shape", [(3, 200_001), (300_001, 2)])
def test_a_checksum_of_large_tensors_is_the_sum_over_their_parts(shape: tuple[int, int]) -> None:
    whole = filled(torch.bfloat16, *shape)
    left, right = whole.split([1, shape[1] - 1], 1)
    assert (part_sum(left, (0, 0)) + part_sum(right, (0, 1))) % 2**64 == part_sum(whole, (0, 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_checksum_sees_each_element_and_its_place(dtype: torch.dtype) -> None:
    values = filled(dtype, 256, 64)
    changed = [
        values.flip(0),
        values.flip(1),
        values[torch.arange(256) ^ 1],
        values.t().reshape(256, 64),
        torch.zeros_like(values),
    ]
    if dtype is not torch.bool:
        changed += [-values, values * 2]
    for place in range(0, values.numel(), 601):
        other = values.clone()
        other.view(-1)[place] = other.view(-1)[place] == 0
        changed.append(other)
    assert len({part_sum(each, (0, 0)) for each in (values, *changed)}) == 1 + len(changed)
    assert part_sum(values.t().contiguous().t(), (0, 0)) == part_sum(values, (0, 0))


def test_each_part_counts_once_and_replicas_must_be_alike() -> None:
    top, bottom = Region((0, 0), (1, 2)), Region((1, 0), (1, 2))
    key, other = ("model", "0.weight"), ("model", "1.weight")

    def of(region: Region, number: int, *, frozen: bool = True) -> Seen:
        return Seen("float32 [2, 2]", region, number, frozen)

    whole = [{key: of(top, 2**64 - 1)}, {key: of(bottom, 3)}]
    assert (
        checksums(whole)
        == checksums([*whole, *whole, {}])
        == {key: "float32 [2, 2] #0000000000000002"}
    )
    assert checksums([{key: of(top, 1)}, {other: of(top, 2)}]) == {
        key: "float32 [2, 2] #0000000000000001",
        other: "float32 [2, 2] #0000000000000002",
    }
    assert checksums([{key: of(top, 1, frozen=False)}, {key: of(top, 2, frozen=False)}])
    with pytest.raises(
        RuntimeError,
        match=r"the frozen 0\.weight of model has other values on rank 1 than on rank 0",
    ):
        checksums([{key: of(top, 1)}, {key: of(top, 2)}])


def adapted_model(base_seed: int = 0, mesh: Any = None) -> nn.Sequential:
    """A frozen layer, and two that are trained."""
    torch.manual_seed(base_seed)
    base = nn.Linear(256, 256)
    torch.manual_seed(1)
    model = nn.Sequential(base, nn.Tanh(), nn.Linear(256, 6), nn.Linear(6, 3))
    base.requires_grad_(False)
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def begin(folder: Path | None, model: nn.Module, **options: Any) -> ShardedState:
    os.environ["ELASTIC_PYTORCH_NODE"] = f"node-{dist.get_rank()}"
    optimizer = FusedAdamW((each for each in model.parameters() if each.requires_grad), lr=0.05)
    state = ShardedState(
        folder,
        ShardedState.Options(**{"every": 1, **options}),
        model=elastic.Trained(model),
        optimizer=optimizer,
    )
    try:
        state.restore()
    except RuntimeError:
        state.close()
        raise
    assert state._holds(model)
    return state


def train(folder: Path | None, steps: int, memory: bool = True) -> tuple[int, list[torch.Tensor]]:
    """Where it began, and all weights after each step, that one first."""
    model = adapted_model()
    state = begin(folder, model, memory=memory, total_steps=steps)
    begun, outcomes = state.step, [weights(model)]
    while state.step < steps:
        model(
            torch.randn(4, 256, generator=torch.Generator().manual_seed(state.step))
        ).square().mean().backward()
        state._objects["optimizer"].step()
        state._objects["optimizer"].zero_grad()
        until_copied(state)
        state.commit()
        outcomes.append(weights(model))
    assert begun == steps or not state._objects["model"].suspects(), (
        "training reads the frozen layer only"
    )
    until_copied(state)
    sizes = (
        [slot.length for slot in state._peers.snapshot.slots()] if state._peers is not None else []
    )
    assert all(size < 100_000 for size in sizes), "half of the frozen layer alone has 131 KB"
    return begun, outcomes


def until_copied(state: ShardedState) -> None:
    """Lets time pass, as long steps do."""
    while dist.get_world_size() > 1 and state._peers is not None and not state._peers.may_copy:
        state._peers.agree_now()


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([each.detach().full_tensor().flatten() for each in model.parameters()])


@pytest.mark.process
@pytest.mark.parametrize(
    "lost", [0, *(pytest.param(lost, marks=pytest.mark.long) for lost in (1, None))]
)
def test_a_group_of_any_size_goes_on_from_memory(lost: int | None) -> None:
    with pods(1) as servers:
        [(_, undisturbed)] = run_pods(servers, 1, train, None, 6)
    with pods(2) as servers, pods(1) as new:
        run_pods(servers, 1, train, None, 3)
        if lost is not None:
            del servers[lost]
        for begun, outcomes in run_pods(
            [*servers, *(new if lost is None else ())], 1, train, None, 6
        ):
            assert begun == 3
            torch.testing.assert_close(outcomes, undisturbed[3:], rtol=1e-7, atol=1e-7)


@pytest.mark.process
def test_a_group_of_any_size_goes_on_from_the_disk_which_has_no_frozen_weights(
    tmp_path: Path,
) -> None:
    [(_, undisturbed)] = run_group(1, train, tmp_path / "undisturbed", 6, False)
    run_group(2, train, tmp_path / "parts", 3, False)
    for begun, outcomes in run_group(3, train, tmp_path / "parts", 6, False):
        assert begun == 3
        torch.testing.assert_close(outcomes, undisturbed[3:], rtol=1e-7, atol=1e-7)
    saved = elastic.load(tmp_path / "parts")["model"]
    assert saved["frozen"].keys() == {"0.weight", "0.bias"}
    assert saved["trained"].keys() == {"2.weight", "2.bias", "3.weight", "3.bias"}
    assert (
        sum(path.stat().st_size for path in (tmp_path / "parts").rglob("*.distcp")) < 4 * 256 * 256
    )


def begin_with_other_weights(folder: Path) -> list[str]:
    told = []
    larger = nn.Sequential(nn.Linear(256, 257), nn.Tanh(), nn.Linear(257, 6), nn.Linear(6, 3))
    larger[0].requires_grad_(False)
    for model in (adapted_model(base_seed=7), fully_shard(larger)):
        with pytest.raises(RuntimeError) as refused:
            begin(folder, model, memory=False)
        told.append(str(refused.value))
    return told


@pytest.mark.process
def test_other_frozen_weights_are_refused_by_name_on_all_ranks(tmp_path: Path) -> None:
    run_group(2, train, tmp_path, 2, False)
    for other, larger in run_group(3, begin_with_other_weights, tmp_path):
        assert (
            "does not fit the model of this script: the frozen 0.weight is float32 [256, 256] #"
            in other
        )
        assert "load the same ones in each start of the script" in other
        assert "257" in larger


def begin_with_unlike_replicas() -> str:
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    with pytest.raises(RuntimeError) as refused:
        begin(None, adapted_model(dist.get_rank(), mesh))
    return str(refused.value)


@pytest.mark.process
def test_replicas_with_other_frozen_weights_are_refused() -> None:
    [first, second] = run_group(2, begin_with_unlike_replicas)
    assert first == second
    assert "other values on rank 1 than on rank 0" in first


@torch.no_grad()
def by_torch(weight: nn.Parameter) -> None:
    weight.mul_(2)


@torch.no_grad()
def by_one_rank(weight: nn.Parameter) -> None:
    """Only this rank can see it."""
    assert isinstance(weight, DTensor)
    if dist.get_rank() == 0:
        weight.to_local().mul_(2)


def by_numpy(weight: nn.Parameter) -> None:
    assert isinstance(weight, DTensor)
    weight.detach().to_local().numpy()[:] *= 2


def change(folder: Path, writes: list[Callable[[nn.Parameter], None]]) -> list[list[float]]:
    """What the weights are at the end, for each way to write to a frozen one."""
    outcomes = []
    for write in writes:
        model = adapted_model()
        state = begin(folder / write.__name__, model, memory=False)
        if state.step == 0:
            if write is by_torch:
                state.commit()  # torch counts it, so it is seen at any time
            write(model[0].weight)
            state.commit()
            state.flush()
        outcomes.append(weights(model).tolist())
        state.close()
    return outcomes


@pytest.mark.process
def test_a_frozen_weight_that_is_written_to_is_kept(tmp_path: Path) -> None:
    writes = [by_torch, by_one_rank, by_numpy]
    [outcomes, _] = run_group(2, change, tmp_path, writes)
    assert all(each != outcomes[1] for each in (outcomes[0], outcomes[2]))
    assert run_group(3, change, tmp_path, writes) == [outcomes] * 3
    assert outcomes[0] == outcomes[2]


def thaw(folder: Path, steps: int) -> tuple[int, list[float]]:
    """Trains the frozen layer from a step on, and freezes the last one then."""
    model = adapted_model()
    optimizer = AdamW(model.parameters())
    state = ShardedState(
        folder,
        ShardedState.Options(every=1, memory=False, total_steps=steps),
        model=elastic.Trained(model),
        optimizer=optimizer,
    )
    begun = state.restore()
    while state.step < steps:
        if state.step == 1:
            model[0].requires_grad_(True)
            model[3].requires_grad_(False)
        with torch.no_grad():
            for each in model.parameters():
                if each.requires_grad:
                    each.add_(1)
        state.commit()
    return begun, weights(model).tolist()


@pytest.mark.process
def test_weights_that_are_frozen_later_or_trained_later_are_kept(tmp_path: Path) -> None:
    [(_, outcome), _] = run_group(2, thaw, tmp_path, 4)
    assert run_group(3, thaw, tmp_path, 4) == [(4, outcome)] * 3
