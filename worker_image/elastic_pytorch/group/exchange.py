"""Exchanges tensors' bytes between ranks, beside the group's own work."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from elastic_pytorch.group.broadcast import CHUNK_BYTES, ByteStream, fill, global_rank


def swap(
    sent: Sequence[torch.Tensor],
    to: int,
    received: Sequence[torch.Tensor],
    source: int,
    group: dist.ProcessGroup | None,
    tag: int,
) -> None:
    """Sends tensors to one rank, and fills those that another sends, as all ranks of a ring do.

    They are contiguous, on the CPU. The tag distinguishes several threads.
    """
    to, source = (global_rank(each, group) for each in (to, source))
    # `view` refuses a tensor whose bytes would be received into a copy.
    sending, receiving = ByteStream(sent), ByteStream([each.view(-1) for each in received])
    while sending.left or receiving.left:
        incoming = list[torch.Tensor]()
        works: list[Any] = []
        if count := min(CHUNK_BYTES, receiving.left):
            incoming = receiving.next(count)
            buffer = incoming[0] if len(incoming) == 1 else torch.empty(count, dtype=torch.uint8)
            works.append(dist.irecv(buffer, source, group=group, tag=tag))
        if count := min(CHUNK_BYTES, sending.left):
            views = sending.next(count)
            outgoing = views[0] if len(views) == 1 else torch.cat(views)
            works.append(dist.isend(outgoing, to, group=group, tag=tag))
        for work in works:
            work.wait()
        if len(incoming) > 1:
            fill(incoming, buffer)


def exchange(
    sends: Mapping[int, Sequence[torch.Tensor]],
    receives: Mapping[int, Sequence[torch.Tensor]],
    group: dist.ProcessGroup | None,
    tag: int,
) -> None:
    """Sends tensors by the ranks that get them, and fills others by their senders. Collective.

    In each turn a rank sends to one other rank and receives from one, so that no rank gets all data
    at once. The tensors are contiguous, on the CPU.
    """
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    for turn in range(1, size):
        to, source = (rank + turn) % size, (rank - turn) % size
        swap(sends.get(to, ()), to, receives.get(source, ()), source, group, tag)
