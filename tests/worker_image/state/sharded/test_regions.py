"""Pieces of sharded tensors: whatever the old and the new sharding, each element is filled once."""

from tests.worker_image.cpu_fsdp2 import DTensor  # noqa: F401 - leaves this module out where torch has no FSDP2

# isort: split

import pytest
import torch
from elastic_pytorch.state.sharded.regions import Piece, Region, pieces
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.torch

W = ("model", "weight")


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (Region((0,), (4,)), Region((2,), (4,)), Region((2,), (2,))),
        (Region((0,), (4,)), Region((4,), (4,)), None),
        (Region((0, 2), (4, 2)), Region((1, 0), (1, 3)), Region((1, 2), (1, 1))),
        (Region((0, 0), (4, 2)), Region((0, 0), (0, 2)), None),
        (Region((), ()), Region((), ()), Region((), ())),
    ],
    ids=["a part", "side by side", "two dimensions", "an empty shard", "a number"],
)
def test_overlap(one: Region, other: Region, both: Region | None) -> None:
    assert one.overlap(other) == other.overlap(one) == both


def rows(total: int, ranks: int) -> list[Region]:
    """How `Shard(0)` deals rows out to ranks."""
    each = -(-total // ranks)
    bounds = [(min(total, each * rank), min(total, each * (rank + 1))) for rank in range(ranks)]
    return [Region((begin, 0), (end - begin, 3)) for begin, end in bounds]


@given(total=st.integers(0, 20), before=st.integers(1, 7), after=st.integers(1, 7))
def test_each_element_is_filled_from_where_it_was(total: int, before: int, after: int) -> None:
    whole = torch.arange(total * 3).reshape(total, 3)

    def box(tensor: torch.Tensor, region: Region) -> torch.Tensor:
        return tensor[
            tuple(slice(at, at + size) for at, size in zip(region.offset, region.size, strict=True))
        ]

    shards = [box(whole, region) for region in rows(total, before)]
    held = {part: {W: region} for part, region in enumerate(rows(total, before))}
    for region in rows(total, after):
        filled = torch.full(region.size, -1)
        for piece in pieces({W: region}, held):
            box(filled, piece.target).copy_(box(shards[piece.part], piece.source))
        assert torch.equal(filled, box(whole, region))


def test_equal_parts_are_read_once() -> None:
    half = Region((0, 0), (2, 3)), Region((2, 0), (2, 3))
    held = {0: {W: half[0]}, 1: {W: half[1]}, 2: {W: half[0]}, 3: {W: half[1]}}
    assert pieces({W: Region((1, 0), (2, 3))}, held) == [
        Piece(W, 0, Region((1, 0), (1, 3)), Region((0, 0), (1, 3))),
        Piece(W, 1, Region((0, 0), (1, 3)), Region((1, 0), (1, 3))),
    ]


def test_what_no_part_has_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"model\.weight is not there as a whole"):
        pieces({W: Region((0, 0), (5, 3))}, {0: {W: Region((0, 0), (4, 3))}})
    with pytest.raises(RuntimeError, match=r"model\.weight"):
        pieces({W: Region((0,), (1,))}, {})
