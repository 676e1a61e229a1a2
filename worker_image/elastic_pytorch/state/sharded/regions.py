"""Boxes of a global tensor that ranks have."""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import torch
from torch.distributed.tensor import DTensor

from elastic_pytorch.state.sharded.trees import Keys, name_of


class Region(NamedTuple):
    offset: tuple[int, ...]  # in the global tensor, by dimension
    size: tuple[int, ...]

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
        """Returns the same box, counted from the first element of a box around it."""
        return Region(
            tuple(a - b for a, b in zip(self.offset, outer.offset, strict=True)), self.size
        )

    @property
    def elements(self) -> int:
        return prod(self.size)


class Piece(NamedTuple):
    keys: Keys
    part: int
    source: Region  # in that part's shard
    target: Region  # in the shard that is filled


def region_of(tensor: DTensor) -> Region:
    [chunk] = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call] # as distributed checkpoints do
    return Region(tuple(chunk.offsets), tuple(chunk.sizes))


def local_part(tensor: DTensor) -> torch.Tensor:
    local: torch.Tensor = tensor.detach().to_local()  # type: ignore[attr-defined] # torch has no types for it
    return local


def pieces(
    wanted: Mapping[Keys, Region], parts: Mapping[int, Mapping[Keys, Region]]
) -> list[Piece]:
    """Returns the pieces that fill the wanted boxes from the parts' boxes, each element once.

    Two boxes of one tensor in the parts are the same, or have nothing in common.
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
            raise RuntimeError(
                "the state in memory does not fit this script: "
                f"{name_of(keys)} is not there as a whole"
            )
        found += own
    return found
