"""Sending a state from one rank to all others of a group."""

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
    kinds = tensor_kinds(skeleton)
    sizes = [shape.numel() * torch.empty(0, dtype=dtype).element_size() for dtype, shape in kinds]
    data = torch.cat([_bytes(tensor) for tensor in tensors]) if tensors else torch.empty(sum(sizes), dtype=torch.uint8)
    for start in range(0, len(data), CHUNK_BYTES):
        dist.broadcast(data[start : start + CHUNK_BYTES], source, group=group)
    parts = torch.split(data, sizes) if sizes else ()
    return unflatten(
        skeleton,
        # each a tensor of its own: the parts need not be aligned for their type
        [part.clone().view(dtype).reshape(shape) for part, (dtype, shape) in zip(parts, kinds, strict=True)],
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
