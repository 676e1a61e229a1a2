"""Exchanges of small values between the ranks of a group."""

import hashlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist

from elastic_pytorch.group.broadcast import broadcast_bytes, broadcast_tree, global_rank, pass_on

MOST_NUMBERS = 16  # of each exchange of parts, which has a fixed length


class RankGroup:
    """The ranks of a group; as such, those of a process that is alone."""

    rank = 0

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        return [list(numbers)]

    def first(self, number: int) -> int:
        """Returns rank 0's number, once all ranks have called this."""
        return number

    def send(self, content: bytes, length: int, root: int) -> bytes:
        """Returns the root's bytes, whose number all ranks know."""
        del length, root
        return content

    def broadcast(self, tree: Any, root: int) -> Any:
        """Returns the root's small tree, after several exchanges."""
        del root
        return tree

    def pass_on(self, tensors: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
        """Fills the tensors of all given ranks, which alone call it, with the first one's."""


def first_other(values: Sequence[object]) -> int | None:
    """The first rank whose value differs from rank 0's; None: there is none."""
    return next((rank for rank, each in enumerate(values) if each != values[0]), None)


def cpu_group() -> Any:
    """Returns the default group (None) if it sends CPU tensors, else a new one. Collective."""
    if not dist.is_initialized() or "gloo" in str(dist.get_backend()):
        return None
    return dist.new_group(backend="gloo")


def gather_objects(own: Any, group: Any) -> list[Any]:
    """Returns the small, picklable objects of all ranks, in order. Collective."""
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, own, group=group)
    return found


class TorchGroup(RankGroup):
    def __init__(self, group: Any) -> None:
        self._group = group
        self.rank = dist.get_rank(group)

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        own = torch.tensor(numbers, dtype=torch.int64)
        all_ = [torch.zeros_like(own) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(all_, own, group=self._group)
        return [each.tolist() for each in all_]

    def first(self, number: int) -> int:
        sent = torch.tensor([0 if self.rank else number])
        dist.all_reduce(sent, group=self._group)  # no rank has the sum before all have called
        return int(sent)

    def send(self, content: bytes, length: int, root: int) -> bytes:
        return broadcast_bytes(content, length, global_rank(root, self._group), self._group)

    def broadcast(self, tree: Any, root: int) -> Any:
        return broadcast_tree(tree, root, self._group)

    def pass_on(self, tensors: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
        pass_on(tensors, ranks, self._group)


def gather_parts(group: RankGroup, *parts: Sequence[int]) -> list[list[list[int]]]:
    """Returns for each part the numbers of all ranks. Collective.

    One exchange serves all parts: on a busy node each takes tens of milliseconds. Parts after the
    first may differ in length, so that ranks of different kinds notice it.
    """
    numbers = [number for part in parts for number in part]
    assert len(numbers) <= MOST_NUMBERS
    exchanged = group.gather([*numbers, *[0] * (MOST_NUMBERS - len(numbers))])
    ends = accumulate(map(len, parts))
    return [
        [each[end - len(part) : end] for each in exchanged]
        for part, end in zip(parts, ends, strict=True)
    ]


def digest_number(text: str) -> int:
    """A positive number of 63 bits that ranks compare instead of a text."""
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1) | 1
