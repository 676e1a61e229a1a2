"""States of pipelines, whose stages differ: in memory, on disk, and where none can be told."""

from tests.worker_image.cpu_fsdp2 import fully_shard

# isort: split

import os
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.sharded.same_values import first_unlike, summary_of
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import AdamW
from torch.utils.data import DataLoader

from tests.worker_image.state.sharded.test_sharded_memory import until_copied
from tests.worker_image.state.test_state_memory import pods, run_pods
from tests.worker_image.torch_group import run_group

pytestmark = [pytest.mark.process, pytest.mark.torch]

SIZES = (5, 7, 6, 3)  # of the whole model; stages have other shapes, and other numbers of layers


def new_stage(number: int, mesh: DeviceMesh | None) -> nn.Module:
    """One of two stages; without a mesh, its parameters are plain tensors on each rank."""
    torch.manual_seed(0)
    layers = [nn.Linear(*sizes) for sizes in pairwise(SIZES)]
    stage = nn.Module()
    stage.layers = nn.ModuleDict({str(at): layers[at] for at in ((0, 1) if number == 0 else (2,))})
    return stage if mesh is None else fully_shard(stage, mesh=mesh)


def whole(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.clone()


def train(
    folder: Path | None, steps: int, memory: bool = True, sharded: bool = True
) -> tuple[int, int, list[list[float]]]:
    """The beginning, the stage, and what it has after each step, which only that decides."""
    os.environ |= {"ELASTIC_PYTORCH_UNIT_REPLICAS": "2", "ELASTIC_PYTORCH_JOB_UID": "uid"}
    mesh = elastic.unit_mesh(("pp",))
    number = mesh.get_local_rank("pp")
    stage = new_stage(number, mesh["replicate"] if sharded else None)
    optimizer = AdamW(stage.parameters(), lr=0.1)
    every = 1 if memory or folder is not None else None
    state = ShardedState(
        folder,
        ShardedState.Options(every=every, memory=memory),
        model=stage,
        optimizer=optimizer,
        best=0,
    )
    begun = state.restore()
    assert state.best == begun
    outcomes = []
    while True:
        tensors = [*stage.parameters(), *(each["exp_avg"] for each in optimizer.state.values())]
        outcomes.append([x for each in tensors for x in whole(each.detach()).flatten().tolist()])
        if memory and sharded and state.step > begun:  # without shards, each unit has all
            until_copied(state)
        if state.step == steps:
            return begun, number, outcomes
        for at, parameter in enumerate(stage.parameters()):
            parameter.grad = torch.full_like(parameter, (state.step + at) % 3 - 0.7 + number)
        optimizer.step()
        state.best = state.step + 1
        state.commit()


@pytest.mark.parametrize(
    "sharded",
    [
        pytest.param(True, id="sharded"),
        pytest.param(False, id="replicated", marks=pytest.mark.long),
    ],
)
def test_a_lost_unit_s_stages_are_in_the_memory_of_the_others(sharded: bool) -> None:
    with pods(4) as servers, pods(2) as new:
        undisturbed = run_pods(servers, 1, train, None, 4, True, sharded)
        assert [each[:2] for each in undisturbed] == [(0, 0), (0, 1)] * 2
        for group in (servers[2:], [*servers[:2], *new, *servers[2:]]):
            for (begun, number, outcomes), rank in zip(
                run_pods(group, 1, train, None, 4, True, sharded), range(6), strict=False
            ):
                assert (begun, number) == (4, rank % 2)
                assert outcomes[0][: len(undisturbed[number][2][4])] == undisturbed[number][2][4]


def test_a_checkpoint_fits_any_number_of_units(tmp_path: Path) -> None:
    undisturbed = run_group(2, train, tmp_path / "other", 9, False)
    run_group(2, train, tmp_path, 4, False)
    run_group(4, train, tmp_path, 6, False)
    for begun, number, outcomes in run_group(2, train, tmp_path, 9, False):
        assert begun == 6
        torch.testing.assert_close(outcomes, undisturbed[number][2][6:])


def train_without_a_pipeline(folder: Path) -> str:
    torch.manual_seed(0)
    try:
        ShardedState(
            folder, ShardedState.Options(every=1, memory=False), model=fully_shard(nn.Linear(5, 7))
        ).restore()
    except RuntimeError as error:
        return str(error)
    return ""


def test_a_checkpoint_of_other_stages_is_refused(tmp_path: Path) -> None:
    run_group(2, train, tmp_path, 2, False)
    assert all(
        "is cut into 2 stages of other parameters" in words
        for words in run_group(2, train_without_a_pipeline, tmp_path)
    )


def words_for(model: nn.Module, name: str) -> str:
    state = ShardedState(None, ShardedState.Options(name=name, memory=False), model=model)
    try:
        state.restore()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1)
        state.commit()
    except RuntimeError as error:
        return str(error)
    return ""


def told_of_all() -> dict[str, str]:
    """What is said to stages that are none."""
    number, replica = dist.get_rank() % 2, dist.get_rank() // 2
    torch.manual_seed(dist.get_rank() % 2)
    mesh = elastic.unit_mesh(("pp",), (2,))["replicate"]
    tied = nn.ModuleDict({"table": nn.Linear(3, 3), str(number): nn.Linear(2, 2)})
    other_shape = nn.ModuleDict({str(number): nn.Linear(2 + replica, 2)})
    stage = fully_shard(nn.Sequential(OrderedDict({str(number): nn.Linear(2, 2)})), mesh=mesh)
    optimizer, sampler = AdamW(stage.parameters()), elastic.ElasticSampler(8, 2, mesh=mesh)
    state = ShardedState(
        None,
        ShardedState.Options(name="steps", memory=False),
        model=stage,
        optimizer=optimizer,
        sampler=sampler,
    )
    state.restore()
    with pytest.raises(RuntimeError, match=r"the model is a stage of a pipeline.*sampler\.part"):
        elastic.steps(state, DataLoader(range(8), batch_sampler=sampler), stage, max_steps=1)
    return {
        "tied": words_for(tied, "tied"),
        "other shape": words_for(other_shape, "shape"),
        "same names": words_for(fully_shard(nn.Linear(4, 4), mesh=mesh), "names"),
        "same names, no shards": words_for(nn.Linear(4, 4), "plain"),
    }


def test_stages_that_cannot_be_told_apart_are_refused() -> None:
    for words in run_group(4, told_of_all):
        assert (
            "rank 1 has something else registered than rank 0: "
            "only rank 0 has model.0.weight, and both have" in words["tied"]
        )
        assert (
            "rank 2 has something else registered than rank 0, which is of the same stage"
            in words["other shape"]
        )
        assert (
            "ranks 0 and 1 have the same parameters, by name, shape and place, and other values"
            in words["same names"]
        )
        assert "ranks 0 and 1 have the same parameters" in words["same names, no shards"]


def words_for_experts() -> str:
    """What is said to ranks whose shards differ, or with experts under one name."""
    torch.manual_seed(dist.get_rank())
    model = nn.ModuleDict({"shared": fully_shard(nn.Linear(4, 4)), "expert": nn.Linear(4, 4)})
    return words_for(model, "experts")


def test_experts_that_are_no_dtensors_are_refused() -> None:
    for words in run_group(2, words_for_experts):
        assert (
            "ranks 0 and 1 have the same parameters, by name, shape and place, and other values"
            in words
        )


def test_a_summary_is_of_all_numbers_that_can_be_added() -> None:
    parameters = [
        torch.tensor([3.0, -4.0]),
        torch.ones(12, dtype=torch.bfloat16),
        torch.empty(0),
        torch.ones(2, dtype=torch.int8),
    ]
    assert summary_of([]) == (0.0, 0.0)
    assert summary_of(parameters) == (11.0, pytest.approx(37**0.5))


@pytest.mark.parametrize(
    ("told", "unlike"),
    [
        ([], None),
        ([(1, 5.0, 9.0), (2, 7.0, 9.0)], None),
        ([(1, 5.0, 9.0), (1, 5.001, 9.0)], None),
        ([(1, 5.0, 9.0), (2, 7.0, 9.0), (2, 7.0, 9.0), (1, 5.1, 9.0)], (0, 3)),
        ([(1, 0.0, 0.0), (1, 0.0, 0.0)], None),
        ([(1, float("nan"), 1.0), (1, float("nan"), 1.0)], None),
    ],
    ids=["no ranks", "other shards", "rounding", "other values", "nothing", "not a number"],
)
def test_values_are_compared_among_ranks_with_the_same_shards(
    told: list[tuple[int, float, float]], unlike: tuple[int, int] | None
) -> None:
    assert first_unlike(told) == unlike
