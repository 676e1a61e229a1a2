"""Exchanges tensors' bytes between ranks, beside the group's own work."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from elastic_pytorch.group.broadcast import CHUNK_BYTES, global_rank


class ByteStream:
    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._rest = [
            data
            for data in (tensor.detach().view(-1).view(torch.uint8) for tensor in tensors)
            if len(data)
        ]
        self._rest.reverse()
        self.length = sum(map(len, self._rest))

    def next(self, count: int) -> list[torch.Tensor]:
        views = []
        while count:
            data = self._rest.pop()
            views.append(data[:count])
            if len(data) > count:
                self._rest.append(data[count:])
            count -= len(views[-1])
        return views


def swap(
    sending: ByteStream,
    to: int,
    receiving: ByteStream,
    source: int,
    group: dist.ProcessGroup | None,
    tag: int,
) -> None:
    """Sends bytes to one rank, and receives as many as another sends, as all ranks of a ring do.

    The tag distinguishes several threads.
    """
    to, source = (global_rank(each, group) for each in (to, source))
    sent = received = 0
    while sent < sending.length or received < receiving.length:
        outgoing, incoming = None, list[torch.Tensor]()
        works: list[Any] = []
        if received < receiving.length:
            count = min(CHUNK_BYTES, receiving.length - received)
            incoming = receiving.next(count)
            buffer = incoming[0] if len(incoming) == 1 else torch.empty(count, dtype=torch.uint8)
            works.append(dist.irecv(buffer, source, group=group, tag=tag))
            received += count
        if sent < sending.length:
            count = min(CHUNK_BYTES, sending.length - sent)
            views = sending.next(count)
            outgoing = views[0] if len(views) == 1 else torch.cat(views)
            works.append(dist.isend(outgoing, to, group=group, tag=tag))
            sent += count
        for work in works:
            work.wait()
        if len(incoming) > 1:
            for view, part in zip(
                incoming, torch.split(buffer, [len(view) for view in incoming]), strict=True
            ):
                view.copy_(part)


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
        sending, receiving = ByteStream(sends.get(to, ())), ByteStream(receives.get(source, ()))
        swap(sending, to, receiving, source, group, tag)
