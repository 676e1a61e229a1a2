"""Sending a state from one rank to all others of a group."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from elastic_pytorch.tree_format import flatten, tensor_kinds, unflatten

CHUNK_BYTES = 64 << 20


def broadcast_tree(tree: Any, root: int, group: Any) -> Any:
    """Sends a tree to all ranks of a group; what the root gives is what everybody gets. Collective.

    Args:
        tree: the state at the root; not looked at elsewhere.
        root: the rank in the group that sends.
        group: of a backend that sends CPU tensors.
    """
    source = dist.get_global_rank(group, root) if group is not None else root
    sending = dist.get_rank() == source
    skeleton, tensors = flatten(tree) if sending else (b"", [])
    length = torch.tensor([len(skeleton)])
    dist.broadcast(length, source, group=group)
    text = torch.frombuffer(bytearray(skeleton), dtype=torch.uint8) if sending else torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(text, source, group=group)
    if not sending:
        skeleton = text.numpy().tobytes()
        tensors = [torch.empty(shape, dtype=dtype) for dtype, shape in tensor_kinds(skeleton)]
    _stream(tensors, source, group, sending=sending)
    return unflatten(skeleton, [tensor.detach().cpu() for tensor in tensors] if sending else tensors)


def _stream(tensors: Sequence[torch.Tensor], source: int, group: Any, *, sending: bool) -> None:
    """Sends the bytes of tensors through a buffer: many small ones at once, large ones in pieces, with no second copy of them all."""
    buffer = torch.empty(min(CHUNK_BYTES, sum(tensor.nbytes for tensor in tensors)), dtype=torch.uint8)
    filled: list[tuple[torch.Tensor, torch.Tensor]] = []  # parts of tensors, and of the buffer
    at = 0

    def send() -> None:
        nonlocal at
        dist.broadcast(buffer[:at], source, group=group)
        if not sending:
            for part, place in filled:
                part.copy_(place)
        filled.clear()
        at = 0

    for tensor in tensors:
        if not tensor.nbytes:
            continue
        data = _bytes(tensor)
        start = 0
        while start < len(data):
            length = min(len(data) - start, len(buffer) - at)
            part, place = data[start : start + length], buffer[at : at + length]
            if sending:
                place.copy_(part)
            filled.append((part, place))
            start, at = start + length, at + length
            if at == len(buffer):
                send()
    if at:
        send()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
