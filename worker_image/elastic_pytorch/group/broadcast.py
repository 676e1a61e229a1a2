"""Sends a state from one rank to others of a group."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from elastic_pytorch.state_format.state_encoding import flatten, tensor_kinds, unflatten

CHUNK_BYTES = 16 << 20


class ByteStream:
    """The bytes of tensors, one after the other; those of contiguous CPU tensors are their own."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.left = sum(tensor.nbytes for tensor in tensors)
        self._tensors = (tensor.detach().cpu() for tensor in tensors if tensor.nbytes)
        self._rest = torch.empty(0, dtype=torch.uint8)  # of the newest tensor

    def next(self, count: int) -> list[torch.Tensor]:
        views = []
        self.left -= count
        while count:
            if not len(self._rest):
                self._rest = next(self._tensors).contiguous().view(-1).view(torch.uint8)
            views.append(self._rest[:count])
            self._rest = self._rest[count:]
            count -= len(views[-1])
        return views


def fill(views: Sequence[torch.Tensor], data: torch.Tensor) -> None:
    for view, part in zip(views, torch.split(data, list(map(len, views))), strict=True):
        view.copy_(part)


def broadcast_tree(tree: Any, root: int, group: Any) -> Any:
    """Sends the root's small tree to all ranks of a group and returns it. Collective."""
    source = global_rank(root, group)
    sending = dist.get_rank() == source
    skeleton, tensors = flatten(tree) if sending else (b"", [])
    length = torch.tensor([len(skeleton)])
    dist.broadcast(length, source, group=group)
    skeleton = broadcast_bytes(skeleton, int(length), source, group)
    if not sending:
        tensors = [torch.empty(shape, dtype=dtype) for dtype, shape in tensor_kinds(skeleton)]
    _stream(tensors, lambda buffer: dist.broadcast(buffer, source, group=group), filled=not sending)
    return unflatten(skeleton, [tensor.detach().cpu() for tensor in tensors])


def broadcast_bytes(content: bytes, length: int, source: int, group: Any) -> bytes:
    """Returns the bytes of a global rank, whose number all ranks know. Collective."""
    data = bytearray(content if dist.get_rank() == source else length)
    buffer = torch.frombuffer(data, dtype=torch.uint8)
    dist.broadcast(buffer, source, group=group)
    return buffer.numpy().tobytes()


def pass_on(tensors: Sequence[torch.Tensor], ranks: Sequence[int], group: Any) -> None:
    """Sends tensors along a chain of ranks, which forward a piece while they receive the next.

    Many ranks take about as long as one, and no rank sends more than the tensors' bytes. Only these
    ranks call it, with tensors of the same types and shapes, which receive on the CPU.
    """
    place = ranks.index(dist.get_rank(group))
    before = global_rank(ranks[place - 1], group) if place else None
    behind = global_rank(ranks[place + 1], group) if place + 1 < len(ranks) else None
    sent: list[Any] = []

    def transfer(buffer: torch.Tensor) -> None:
        if before is not None:
            dist.recv(buffer, before, group=group)
        if behind is not None:
            sent.append(dist.isend(buffer, behind, group=group))
        if len(sent) > 1:  # of the other buffer, which is the next one
            sent.pop(0).wait()

    _stream(tensors, transfer, filled=before is not None)
    for work in sent:
        work.wait()


def _stream(
    tensors: Sequence[torch.Tensor], transfer: Callable[[torch.Tensor], Any], *, filled: bool
) -> None:
    """Moves tensors through two buffers in turn: many small ones at once, large ones in pieces.

    `transfer` sends a buffer or fills it; then the other one may be written to. `filled` tensors
    receive.
    """
    stream = ByteStream(tensors)
    buffers = [torch.empty(min(CHUNK_BYTES, stream.left), dtype=torch.uint8) for _ in range(2)]
    while stream.left:
        buffer = buffers[0][: stream.left]
        views = stream.next(len(buffer))
        if not filled:
            torch.cat(views, out=buffer)
        transfer(buffer)
        if filled:
            fill(views, buffer)
        buffers.reverse()


def global_rank(rank: int, group: Any) -> int:
    return dist.get_global_rank(group, rank) if group is not None else rank
