"""Samples are dealt to data-parallel ranks, and a sampler that cannot know them is refused."""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.worker_image.cpu_fsdp2 import fully_shard
from tests.worker_image.scripts.small_texts import IGNORED, loss_of, new_model, texts
from tests.worker_image.torch_group import run_group

pytestmark = [pytest.mark.torch, pytest.mark.process]

SAMPLES, BATCH = 26, 8


def tensor_parallel(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def plain_epoch() -> list[Tensor]:
    """What is to come out: whole batches, one process."""
    model, data = new_model(), texts(SAMPLES)
    optimizer = SGD(model.parameters(), lr=0.5)
    order = list(chain.from_iterable(elastic.ElasticSampler(data, BATCH, seed=2)))
    for begin in range(0, SAMPLES, BATCH):
        inputs, targets, _ = data[order[begin : begin + BATCH]]
        loss_of(model, inputs, targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach() for parameter in model.parameters()]


def train(
    folder: Path, shape: tuple[int, ...], micro_batch_size: int | None, max_steps: int
) -> Any:
    """Two tensor-parallel ranks each go on; returns place, counting samples and weights."""
    names = ("replicas", "shards", "tensors")[-len(shape) :]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    data_parallel, model, data = mesh[names[:-1]], new_model(), texts(SAMPLES)
    fully_shard(tensor_parallel(model, mesh["tensors"]), mesh=data_parallel)
    optimizer = SGD(model.parameters(), lr=0.5)
    sampler = elastic.ElasticSampler(
        data, BATCH, micro_batch_size=micro_batch_size, seed=2, mesh=data_parallel
    )
    state = ShardedState(
        folder,
        ShardedState.Options(every=100, memory=False),
        model=model,
        optimizer=optimizer,
        sampler=sampler,
    )
    state.restore()
    seen: list[int] = []
    for step in elastic.steps(
        state, DataLoader(data, batch_sampler=sampler), model, epochs=1, max_steps=max_steps
    ):
        optimizer.zero_grad()
        for inputs, targets, which in step.parts:
            seen += which[: step.samples].tolist()
            step.backward(loss_of(model, inputs, targets), count=(targets != IGNORED).sum())
        optimizer.step()
    state.flush()
    return (
        sampler.data_parallel.place(),
        seen,
        [parameter.detach().full_tensor() for parameter in model.parameters()],
    )


def test_a_mesh_changes_its_size_and_computes_what_one_process_does(tmp_path: Path) -> None:
    groups = [
        run_group(4, train, tmp_path, (2, 2), 3, 2),
        run_group(2, train, tmp_path, (1, 2), None, 3),
        run_group(4, train, tmp_path, (2, 1, 2), None, 100),
    ]
    samples: list[int] = []
    for group, places in zip(groups, (2, 1, 2), strict=True):
        first, second = group[::2], group[1::2]  # of the tensor-parallel ranks
        assert [each[0] for each in first] == [(place, places) for place in range(places)]
        assert [each[:2] for each in first] == [each[:2] for each in second]
        samples += chain.from_iterable(each[1] for each in first)
    assert sorted(samples) == list(range(SAMPLES))
    for each in groups[-1]:
        torch.testing.assert_close(each[2], plain_epoch(), rtol=1e-10, atol=1e-12)


class Noise(Dataset[tuple[Tensor, int]]):
    """Random numbers, as augmentations draw them; and the sample."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, sample: int) -> tuple[Tensor, int]:
        return torch.rand(3), sample


def augmented() -> list[list[Any]]:
    torch.manual_seed(dist.get_rank())
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensors"))
    sampler = elastic.ElasticSampler(Noise(), 4, mesh=mesh["data"])
    loaders = [
        DataLoader(Noise(), batch_sampler=sampler, num_workers=workers) for workers in (0, 1)
    ]
    return [[(noise.tolist(), which.tolist()) for noise, which in loader] for loader in loaders]


def test_what_a_loader_draws_is_that_of_the_samples_place() -> None:
    first, second, third, fourth = run_group(4, augmented)
    assert (first, third) == (second, fourth)
    assert all(here[0][0] != there[0][0] for here, there in zip(first, third, strict=True))


def words_for(make: Callable[[DeviceMesh], tuple[nn.Module, DeviceMesh | None]]) -> str:
    """What `steps` says to four ranks' model and sampler's mesh; empty: it takes them."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    try:
        model, given = make(mesh)
        data, optimizer = TensorDataset(torch.randn(16, 5)), SGD(model.parameters(), lr=0.1)
        sampler = elastic.ElasticSampler(data, 4, mesh=given)
        state: Any = ShardedState(
            f"unused-{make.__name__}",
            ShardedState.Options(every=1, memory=False),
            model=model,
            optimizer=optimizer,
            sampler=sampler,
        )
        elastic.steps(state, DataLoader(data, batch_sampler=sampler), model, max_steps=1)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


def sharded_and_cut(mesh: DeviceMesh) -> tuple[nn.Module, None]:
    return fully_shard(tensor_parallel(new_model(), mesh["inner"]), mesh=mesh["outer"]), None


def cut_only(mesh: DeviceMesh) -> tuple[nn.Module, None]:
    return tensor_parallel(new_model(), init_device_mesh("cpu", (mesh.size(),))), None


def sharded_in_half(mesh: DeviceMesh) -> tuple[nn.Module, None]:
    return fully_shard(new_model(), mesh=mesh["inner"]), None


def reduced_in_half(mesh: DeviceMesh) -> tuple[nn.Module, None]:
    return DistributedDataParallel(new_model(), process_group=mesh.get_group("outer")), None


def with_the_other_mesh(mesh: DeviceMesh) -> tuple[nn.Module, DeviceMesh]:
    return sharded_and_cut(mesh)[0], mesh["inner"]


def reduced_over_the_other_mesh(mesh: DeviceMesh) -> tuple[nn.Module, DeviceMesh]:
    return reduced_in_half(mesh)[0], mesh["inner"]


def not_for_this_rank(mesh: DeviceMesh) -> tuple[nn.Module, DeviceMesh]:
    return sharded_and_cut(mesh)[0], DeviceMesh(
        "cpu", [(dist.get_rank() + 1) % 4], _init_backend=False
    )


def with_the_whole_mesh(mesh: DeviceMesh) -> tuple[nn.Module, DeviceMesh]:
    return sharded_and_cut(mesh)[0], elastic.unit_mesh(("pp", "tp"), (1, 2))


def replicated_shards(mesh: DeviceMesh) -> tuple[nn.Module, None]:
    return fully_shard(new_model(), mesh=mesh), None


def compiled(mesh: DeviceMesh) -> tuple[nn.Module, DeviceMesh]:
    return torch.compile(reduced_in_half(mesh)[0], backend="eager"), mesh["outer"]


def context_parallel(mesh: DeviceMesh) -> tuple[nn.Module, DeviceMesh]:
    return fully_shard(new_model(), mesh=mesh._flatten()), mesh["outer"]


CASES: dict[Callable[[DeviceMesh], Any], str] = {
    sharded_and_cut: "averaged over 2 of 4 ranks",
    cut_only: "is parallel over more than the data",
    sharded_in_half: "averaged over 2 of 4 ranks",
    reduced_in_half: "averaged over 2 of 4 ranks",
    with_the_other_mesh: "give both the same mesh",
    reduced_over_the_other_mesh: "give both the same mesh",
    not_for_this_rank: "this rank is not in",
    with_the_whole_mesh: "ranks along pp and tp compute one sample together",
    replicated_shards: "",
    compiled: "",
    context_parallel: "",
}


def told_of_all() -> list[str]:
    return [words_for(make) for make in CASES]


def test_a_sampler_that_does_not_fit_the_model_is_refused() -> None:
    for told in run_group(4, told_of_all):
        for words, (make, expected) in zip(told, CASES.items(), strict=True):
            assert expected in words if expected else words == "", make.__name__
