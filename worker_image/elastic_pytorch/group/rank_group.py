"""What the ranks of a group tell each other: numbers of all of them, and bytes of one."""

import hashlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol

import torch
import torch.distributed as dist

from elastic_pytorch.group.broadcast import broadcast_tree, global_rank, pass_on

MOST_NUMBERS = 16  # in one exchange of parts, which always has as many


class RankGroup(Protocol):
    rank: int

    def gather(self, numbers: Sequence[int]) -> list[list[int]]: ...

    def first(self, number: int) -> int:
        """Returns rank 0's number, once all ranks have come here."""

    def send(self, content: bytes, length: int, root: int) -> bytes:
        """Returns the root's bytes, of which all ranks know the number."""

    def broadcast(self, tree: Any, root: int) -> Any:
        """Returns the root's tree; for small trees. It takes several exchanges."""

    def pass_on(self, tensors: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
        """Fills the tensors of all given ranks with those of the first one.

        Only these ranks call it.
        """


def first_other(told: Sequence[object]) -> int | None:
    """Returns the first rank that has told something else than rank 0; None: there is none."""
    return next((rank for rank, each in enumerate(told) if each != told[0]), None)


def cpu_group() -> Any:
    """Returns the default group (None) if it can send CPU tensors, else a new one that can.

    Collective.
    """
    if not dist.is_initialized() or "gloo" in str(dist.get_backend()):
        return None
    return dist.new_group(backend="gloo")


def gather_objects(own: Any, group: Any) -> list[Any]:
    """Returns what all ranks have, in their order, from what this rank has; pickled, so for small things. Collective."""
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, own, group=group)
    return found


class TorchGroup:
    def __init__(self, group: Any) -> None:
        self._group = group
        self.rank = dist.get_rank(group)

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        own = torch.tensor(numbers, dtype=torch.int64)
        all_ = [torch.zeros_like(own) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(all_, own, group=self._group)
        return [each.tolist() for each in all_]

    def first(self, number: int) -> int:
        told = torch.tensor([0 if self.rank else number])
        dist.all_reduce(told, group=self._group)  # no rank has the sum before all have come
        return int(told)

    def send(self, content: bytes, length: int, root: int) -> bytes:
        is_root = self.rank == root
        buffer = (
            torch.frombuffer(bytearray(content), dtype=torch.uint8)
            if is_root
            else torch.empty(length, dtype=torch.uint8)
        )
        dist.broadcast(buffer, global_rank(root, self._group), group=self._group)
        return buffer.numpy().tobytes()

    def broadcast(self, tree: Any, root: int) -> Any:
        return broadcast_tree(tree, root, self._group)

    def pass_on(self, tensors: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
        pass_on(tensors, ranks, self._group)


class Alone:
    rank = 0

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        return [list(numbers)]

    def first(self, number: int) -> int:
        return number

    def send(self, content: bytes, length: int, root: int) -> bytes:
        del length, root
        return content

    def broadcast(self, tree: Any, root: int) -> Any:
        del root
        return tree

    def pass_on(self, tensors: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
        pass


def gather_parts(group: RankGroup, *parts: Sequence[int]) -> list[list[list[int]]]:
    """Returns for each part the numbers of all ranks, in one exchange: on a busy node each one takes tens of milliseconds. Collective.

    The first part must be of the same length on all ranks. Others need not be, so that ranks of
    different kinds can tell that they are.
    """
    numbers = [number for part in parts for number in part]
    assert len(numbers) <= MOST_NUMBERS
    told = group.gather([*numbers, *[0] * (MOST_NUMBERS - len(numbers))])
    ends = accumulate(map(len, parts))
    return [
        [each[end - len(part) : end] for each in told]
        for part, end in zip(parts, ends, strict=True)
    ]


def digest_number(text: str) -> int:
    """Returns a number that ranks compare instead of a text: positive, in 63 bits."""
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1) | 1
