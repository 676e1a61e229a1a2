from typing import Any

import pytest
import torch.distributed as dist
from elastic_pytorch.group.rank_group import RankGroup, TorchGroup, gather_parts

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch


def tell(group: RankGroup) -> Any:
    last = dist.get_world_size() - 1 if dist.is_initialized() else 0
    sent = group.send(b"of %d" % group.rank, 4, last)
    return (
        gather_parts(group, [group.rank, 7], [], [-group.rank]),
        group.first(group.rank + 5),
        sent,
    )


def tell_others() -> Any:
    return [tell(TorchGroup(group)) for group in (None, dist.new_group(backend="gloo"))]


@pytest.mark.process
def test_parts_of_an_exchange_come_apart_again() -> None:
    for outcomes in run_group(3, tell_others):
        assert (
            outcomes
            == [([[[0, 7], [1, 7], [2, 7]], [[], [], []], [[0], [-1], [-2]]], 5, b"of 2")] * 2
        )


def test_process_that_runs_alone_tells_itself() -> None:
    assert tell(RankGroup()) == ([[[0, 7]], [[]], [[0]]], 5, b"of 0")
