"""A state in memory that all processes of a pod share."""

import mmap
import weakref
from typing import Any

import torch

from elastic_pytorch.memory.slot_memory import populate
from elastic_pytorch.memory.slots import Slot, valid_slots
from elastic_pytorch.state_format.payload import view_payload


class MappedState:
    """A state in a memory file, whose tensors are views that are copied page by page on a write.

    They are valid until their slot is written to: call `release` before that.
    """

    def __init__(self, fd: int, slot: Slot | None = None) -> None:
        slot = slot or next(iter(valid_slots(fd)), None)
        if slot is None:
            raise LookupError("an empty snapshot")
        self.version = slot.version
        self._length = slot.length
        self._map: mmap.mmap | None = mmap.mmap(
            fd, self._length, flags=mmap.MAP_PRIVATE, offset=slot.offset
        )
        self._address = torch.frombuffer(self._map, dtype=torch.uint8).data_ptr()
        self.tree: Any = view_payload(self._map)

    def holds(self, tensor: torch.Tensor) -> bool:
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            return False
        return self._address <= tensor.data_ptr() < self._address + self._length

    @property
    def payload(self) -> torch.Tensor:
        """Its bytes, read-only."""
        assert self._map is not None
        return torch.frombuffer(self._map, dtype=torch.uint8)

    def release(self) -> None:
        """Drops the tree, and keeps a copy of the memory for tensors that are still used."""
        if self._map is None:
            return
        kept = weakref.ref(self._map)
        self.tree = self._map = None
        if (memory := kept()) is not None:
            _take_copy(memory, self._address)


def _take_copy(memory: mmap.mmap, address: int) -> None:
    if populate(address, len(memory)):
        return
    for at in range(0, len(memory), mmap.PAGESIZE):  # an older kernel
        memory[at] = memory[at]
