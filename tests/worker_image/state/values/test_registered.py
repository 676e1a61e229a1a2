"""What cannot be kept is refused with words, on all ranks, before anything hangs."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.state import State
from elastic_pytorch.state.values.registered import describe, first_difference, refuse_sharded
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


def outcome_of_restore(registered: dict[str, Any], name: str = "") -> str:
    try:
        State(None, State.Options(name=name), **registered).restore()
    except RuntimeError as error:
        return str(error)
    return "restored"


def restore_fsdp1() -> list[str]:
    model = FullyShardedDataParallel(
        nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), device_id=torch.device("cpu")
    )
    return [
        outcome_of_restore({"model": model}),
        outcome_of_restore({"model": nn.Sequential(model)}),
        outcome_of_restore({"optimizer": AdamW(model.parameters())}),
    ]


@pytest.mark.process
def test_fsdp1_is_refused_before_it_hangs() -> None:
    for of_rank in run_group(2, restore_fsdp1):
        assert [message.partition(":")[0] for message in of_rank] == [
            "model is a FullyShardedDataParallel, whose state_dict is collective",
            "model is a FullyShardedDataParallel, whose state_dict is collective",
            "optimizer is a FullyShardedDataParallel, whose state_dict is collective",
        ]
        assert all("fully_shard before State is made" in message for message in of_rank)


def restore_zero_redundancy() -> str:
    model = nn.Linear(4, 4)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=AdamW, lr=0.1)
    return outcome_of_restore({"model": model, "optimizer": optimizer})


@pytest.mark.process
def test_torchs_own_zero_is_refused() -> None:
    assert all(
        "use the optimizer that it wraps" in message
        for message in run_group(2, restore_zero_redundancy)
    )


def zero3() -> nn.Module:
    """As DeepSpeed leaves a model: placeholders that say which parameters they are."""
    model = nn.Linear(4, 4)
    for number, parameter in enumerate(model.parameters()):
        parameter.ds_id, parameter.ds_shape = number, parameter.shape
        parameter.data = torch.empty(0)
    return model


def test_deepspeed_is_refused() -> None:
    engine = type("DeepSpeedEngine", (nn.Linear,), {"__module__": "deepspeed.runtime.engine"})(2, 2)
    for registered in (
        {"model": zero3()},
        {"model": engine},
        {"optimizer": torch.optim.SGD(zero3().parameters())},
    ):
        with pytest.raises(RuntimeError, match=r"kept in parts by DeepSpeed.*DeepSpeedState"):
            refuse_sharded(registered, "")


def restore_different_shards() -> list[str]:
    rank = dist.get_rank()
    same, other = nn.Linear(3, 3), nn.Embedding(50 if rank == 2 else 100, 8)
    return [
        outcome_of_restore({"trunk": same, "table": other}),
        outcome_of_restore(
            {"trunk": same} if rank != 1 else {"trunk": same, "more": nn.Linear(1, 1)}
        ),
        outcome_of_restore(
            {"trunk": DistributedDataParallel(same)}, name="critic" if rank else "actor"
        ),
        outcome_of_restore(
            {
                "trunk": DistributedDataParallel(same),
                "lazy": nn.LazyLinear(3) if rank else nn.Linear(2, 3),
            }
        ),
    ]


@pytest.mark.process
def test_models_that_differ_between_ranks_are_refused_by_name() -> None:
    for of_rank in run_group(3, restore_different_shards):
        shard, more, name, lazy = of_rank
        assert "rank 2 has something else registered than rank 0" in shard
        assert (
            "table.weight is torch.float32 [100, 8] on rank 0, and torch.float32 [50, "
            "8] on that rank" in shard
        )
        assert (
            "rank 1 has something else registered than rank 0: only that rank has more.weight"
            in more
        )
        assert (
            "State is no folder, name='actor' on rank 0, and no folder, name='critic' on that rank"
            in name
        )
        assert "has something else" not in lazy


@pytest.mark.parametrize(
    ("first", "other", "difference"),
    [
        ({"a": "x"}, {"a": "x"}, None),
        ({"a": "x"}, {"a": ""}, None),
        ({"a": "x", "b": "y"}, {"a": "x"}, "only rank 0 has b"),
        ({"a": "x"}, {"a": "x", "b": ""}, "only that rank has b"),
        ({"a": "x", "b": "y"}, {"a": "x", "b": "z"}, "b is y on rank 0, and z on that rank"),
    ],
)
def test_first_difference(
    first: dict[str, str], other: dict[str, str], difference: str | None
) -> None:
    assert first_difference(first, other) == difference


def test_what_is_described() -> None:
    described = describe(
        {
            "model": nn.Linear(2, 3),
            "lazy": nn.LazyLinear(2),
            "value": 3,
            "optimizer": AdamW([torch.zeros(1)]),
        }
    )
    assert described == {
        "model.weight": "torch.float32 [3, 2]",
        "model.bias": "torch.float32 [3]",
        "lazy.weight": "",
        "lazy.bias": "",
    }
