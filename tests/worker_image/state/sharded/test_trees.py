"""What is beside the sharded tensors of a tree stays what it is."""

from tests.worker_image.cpu_fsdp2 import fully_shard

# isort: split

from collections import Counter, OrderedDict, defaultdict
from typing import Any

import pytest
import torch
from elastic_pytorch.state.sharded.trees import insert, taken_apart
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Shard

from tests.worker_image.torch_group import run_group

pytestmark = [pytest.mark.process, pytest.mark.torch]


def take_apart() -> None:
    state = fully_shard(nn.Linear(2, 2)).state_dict()
    beside = [Counter("aab"), defaultdict(int, a=1), OrderedDict(b=2), [{"c": 3}]]
    tree: dict[str, Any] = {"model": state, "beside": beside, "both": [state["weight"], beside]}
    shards, rest = taken_apart(tree)
    assert shards.keys() == {("model", "weight"), ("model", "bias"), ("both", 0)}
    assert rest["beside"] is beside and rest["both"][1] is beside
    assert type(rest["model"]) is OrderedDict
    assert rest["model"]._metadata == state._metadata  # the versions of modules
    assert all(value is not None for value in state.values()) and tree["both"][0] is state["weight"]
    for keys, tensor in shards.items():
        insert(rest, keys, tensor)
    assert rest == tree


def test_types_are_kept_beside_shards_and_the_tree_is_not_changed() -> None:
    run_group(1, take_apart)


def refuse() -> list[str]:
    mesh = init_device_mesh("cpu", (1,))
    summand, shard = (
        DTensor.from_local(torch.ones(2), mesh, [each]) for each in (Partial(), Shard(0))
    )
    told = []
    for tree in ({"loss": {"sum": summand}}, {"a": {"b": shard}, "a.b": shard}):
        with pytest.raises(RuntimeError) as refusal:
            taken_apart(tree)
        told.append(str(refusal.value))
    return told


def test_what_no_rank_has_a_shard_of_is_refused_by_name_and_so_are_two_of_one_name() -> None:
    ((summand, equal),) = run_group(1, refuse)
    assert summand.startswith("loss.sum is a DTensor with a Partial placement")
    assert "at ('a', 'b') and at ('a.b',) are both called a.b" in equal
