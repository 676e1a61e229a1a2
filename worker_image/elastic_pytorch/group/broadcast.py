"""Sends a state from one rank to others of a group."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from elastic_pytorch.state_format.state_encoding import flatten, tensor_kinds, unflatten

CHUNK_BYTES = 16 << 20


def broadcast_tree(tree: Any, root: int, group: Any) -> Any:
    """Sends the root's small tree to all ranks of a group and returns it. Collective."""
    source = global_rank(root, group)
    sending = dist.get_rank() == source
    skeleton, tensors = flatten(tree) if sending else (b"", [])
    length = torch.tensor([len(skeleton)])
    dist.broadcast(length, source, group=group)
    text = torch.frombuffer(bytearray(skeleton if sending else int(length)), dtype=torch.uint8)
    dist.broadcast(text, source, group=group)
    if not sending:
        skeleton = text.numpy().tobytes()
        tensors = [torch.empty(shape, dtype=dtype) for dtype, shape in tensor_kinds(skeleton)]
    _stream(tensors, lambda buffer: dist.broadcast(buffer, source, group=group), filled=not sending)
    return unflatten(
        skeleton, [tensor.detach().cpu() for tensor in tensors] if sending else tensors
    )


def pass_on(tensors: Sequence[torch.Tensor], ranks: Sequence[int], group: Any) -> None:
    """Sends tensors along a chain of ranks, which forward a piece while they receive the next.

    Many ranks take about as long as one, and no rank sends more than the tensors' bytes. Only these
    ranks call it, with CPU tensors of the same types and shapes.
    """
    place = ranks.index(dist.get_rank(group))
    before = global_rank(ranks[place - 1], group) if place else None
    behind = global_rank(ranks[place + 1], group) if place + 1 < len(ranks) else None
    sent: dict[int, Any] = {}  # by the address of the buffer

    def transfer(buffer: torch.Tensor) -> None:
        if before is not None:
            dist.recv(buffer, before, group=group)
        if behind is not None:
            sent[buffer.data_ptr()] = dist.isend(buffer, behind, group=group)

    def until_free(buffer: torch.Tensor) -> None:
        if (work := sent.pop(buffer.data_ptr(), None)) is not None:
            work.wait()

    _stream(tensors, transfer, filled=before is not None, until_free=until_free)
    for work in sent.values():
        work.wait()


def _stream(
    tensors: Sequence[torch.Tensor],
    transfer: Callable[[torch.Tensor], Any],
    *,
    filled: bool,
    until_free: Callable[[torch.Tensor], None] = lambda _: None,
) -> None:
    """Moves tensors through two buffers in turn: many small ones at once, large ones in pieces.

    `transfer` sends a buffer or fills it, once `until_free` has waited until it may be written to.
    `filled` tensors receive.
    """
    length = min(CHUNK_BYTES, sum(tensor.nbytes for tensor in tensors))
    buffers = [torch.empty(length, dtype=torch.uint8) for _ in range(2)]
    parts: list[tuple[torch.Tensor, torch.Tensor]] = []  # of tensors, and of the buffer
    at = 0

    def move() -> None:
        nonlocal at
        until_free(buffers[0])
        if not filled:
            for part, place in parts:
                place.copy_(part)
        transfer(buffers[0][:at])
        if filled:
            for part, place in parts:
                part.copy_(place)
        parts.clear()
        buffers.reverse()
        at = 0

    for tensor in tensors:
        if not tensor.nbytes:
            continue
        data = _bytes(tensor)
        start = 0
        while start < len(data):
            count = min(len(data) - start, length - at)
            parts.append((data[start : start + count], buffers[0][at : at + count]))
            start, at = start + count, at + count
            if at == length:
                move()
    if at:
        move()


def global_rank(rank: int, group: Any) -> int:
    return dist.get_global_rank(group, rank) if group is not None else rank


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
