from typing import Any

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.group import broadcast
from elastic_pytorch.group.broadcast import broadcast_tree, pass_on

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch

SHAPES: list[tuple[int, ...]] = [(3,), (), (0,), (700, 3), (5, 5), (1,), (4000,)]


def tensors(fill: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(shape, generator=generator) for shape in SHAPES]
    made.append(torch.arange(50, dtype=torch.int64).view(5, 10).t())  # not contiguous
    return made if fill else [torch.zeros(tensor.shape, dtype=tensor.dtype) for tensor in made]


def pass_on_along(ranks: list[int], chunk_bytes: int) -> list[Any]:
    broadcast.CHUNK_BYTES = chunk_bytes
    mine = tensors(dist.get_rank() == ranks[0])
    if dist.get_rank() in ranks:
        pass_on(mine, ranks, None)
    tree = broadcast_tree({"step": dist.get_rank(), "weights": mine[3]}, ranks[0], None)
    return [*(tensor.tolist() for tensor in mine), tree["step"], tree["weights"].tolist()]


@pytest.mark.process
@pytest.mark.parametrize("chunk_bytes", [1000, 16 << 20])
def test_each_of_the_chain_gets_it_and_no_other(chunk_bytes: int) -> None:
    ranks = [2, 0, 3]
    whole = [tensor.tolist() for tensor in tensors(fill=True)]
    nothing = [tensor.tolist() for tensor in tensors(fill=False)]
    for rank, outcome in enumerate(run_group(4, pass_on_along, ranks, chunk_bytes)):
        assert outcome[:-2] == (whole if rank in ranks else nothing)
        assert outcome[-2:] == [2, whole[3]]
