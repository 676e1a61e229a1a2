"""Which part of a sharded tensor lies where: boxes of a global tensor, and the pieces that fill one box from others."""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import torch
from torch.distributed.tensor import DTensor

from elastic_pytorch.state.sharded.trees import Keys, name_of


class Region(NamedTuple):
    offset: tuple[int, ...]  # of its first element in the global tensor, by dimension
    size: tuple[int, ...]  # by dimension

    def overlap(self, other: "Region") -> "Region | None":
        offset = tuple(map(max, self.offset, other.offset))
        ends = (
            min(a + size_a, b + size_b)
            for a, size_a, b, size_b in zip(
                self.offset, self.size, other.offset, other.size, strict=True
            )
        )
        size = tuple(end - begin for begin, end in zip(offset, ends, strict=True))
        return Region(offset, size) if all(each > 0 for each in size) else None

    def within(self, outer: "Region") -> "Region":
        """Returns the same box, counted from the first element of a box that contains it."""
        return Region(
            tuple(a - b for a, b in zip(self.offset, outer.offset, strict=True)), self.size
        )

    @property
    def elements(self) -> int:
        return prod(self.size)


class Piece(NamedTuple):
    keys: Keys
    part: int  # which shard it is in, see `pieces`
    source: Region  # the box in that shard
    target: Region  # the same box in the shard that is filled


class Uncovered(RuntimeError):
    """Some elements of a tensor are in no shard."""


def region_of(tensor: DTensor) -> Region:
    [chunk] = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call] # as distributed checkpoints do
    return Region(tuple(chunk.offsets), tuple(chunk.sizes))


def local_part(tensor: DTensor) -> torch.Tensor:
    local: torch.Tensor = tensor.detach().to_local()  # type: ignore[attr-defined] # torch has no types for it
    return local


def pieces(
    wanted: Mapping[Keys, Region], parts: Mapping[int, Mapping[Keys, Region]]
) -> list[Piece]:
    """Returns what fills the wanted boxes, by the tensors' keys, from those in each part: each element once.

    Two boxes of one tensor in the parts are the same, or have nothing in common.

    Raises:
        Uncovered: the parts do not have all elements of a box; the message names the tensor.
    """
    there: dict[Keys, dict[Region, int]] = {}
    for part, regions in parts.items():
        for keys, region in regions.items():
            there.setdefault(keys, {}).setdefault(region, part)
    found = []
    for keys, region in wanted.items():
        overlaps = [
            (part, other, region.overlap(other)) for other, part in there.get(keys, {}).items()
        ]
        own = [
            Piece(keys, part, box.within(other), box.within(region))
            for part, other, box in overlaps
            if box is not None
        ]
        if sum(piece.source.elements for piece in own) != region.elements:
            raise Uncovered(f"{name_of(keys)} is not there as a whole")
        found += own
    return found
