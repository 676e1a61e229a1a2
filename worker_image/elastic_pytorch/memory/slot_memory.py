"""The memory of a snapshot's slots: mapped, pinned for a GPU that copies into it, and released."""

import contextlib
import ctypes
import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path

import torch

from elastic_pytorch.memory import slots
from elastic_pytorch.memory.gpu_copies import lock_pages, unlock_pages
from elastic_pytorch.memory.slots import SLOT_BYTES
from elastic_pytorch.state_format.payload import PREFIX, TensorKind, tensor_offsets, view_at

MADV_POPULATE_WRITE = 23  # Linux 5.14
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
SKELETON_ROOM = 1 << 16  # spare bytes of a mapping, for a skeleton that grows
CGROUP = Path("/sys/fs/cgroup")
# In memory.stat: the kernel takes this back before it kills.
RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")


def room() -> int | None:
    """How many bytes the container may still take; None: no limit is known."""
    try:
        used = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        reclaimable = sum(int(used[name]) for name in RECLAIMABLE)
        taken = int((CGROUP / "memory.current").read_text()) - reclaimable
        return int((CGROUP / "memory.max").read_text()) - taken
    except (OSError, ValueError, KeyError):  # "max"
        return None


class SlotMemory:
    """The tensors in a slot. It refuses memory for which the kernel would kill processes."""

    def __init__(
        self, fd: int, number: int, kinds: Sequence[TensorKind], skeleton_length: int
    ) -> None:
        offsets, self._data_end = tensor_offsets(kinds)
        length = self._data_end + skeleton_length + SKELETON_ROOM
        length = -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
        if length > SLOT_BYTES:
            raise ValueError(
                f"a state of {length} bytes is too large for a snapshot, which holds {SLOT_BYTES}"
            )
        needed = length - _memory_of(fd, number)
        if (bytes_left := room()) is not None and bytes_left < needed:
            raise MemoryError(
                f"the next commit of the state takes {needed / 1e9:.1f} GB more of the pod's "
                f"memory, of which the container has {max(0, bytes_left) / 1e9:.1f} GB left: "
                "raise resources.limits.memory. A State takes two to three times its size"
            )
        self._map = mmap.mmap(fd, length, offset=slots.slot_offset(number))
        self._kinds = kinds
        self._bytes = memoryview(self._map)
        self._address = torch.frombuffer(self._map, dtype=torch.uint8).data_ptr()
        self._locked = False
        populate(self._address, length)
        self.tensors = [
            view_at(self._map, offset, *kind) for kind, offset in zip(kinds, offsets, strict=True)
        ]

    def fits(self, kinds: Sequence[TensorKind], skeleton_length: int) -> bool:
        return kinds == self._kinds and self._data_end + skeleton_length <= len(self._bytes)

    def lock(self) -> None:
        """Pins the pages while this object exists, for asynchronous copies from a GPU."""
        if not self._locked:
            self._locked = True
            if lock_pages(self._address, len(self._bytes)):
                weakref.finalize(self, unlock_pages, self._address).atexit = False

    def put_skeleton(self, skeleton: bytes) -> int:
        """Returns the state's length."""
        end = self._data_end + len(skeleton)
        self._bytes[self._data_end : end] = skeleton
        self._bytes[: PREFIX.size] = PREFIX.pack(self._data_end - PREFIX.size, len(skeleton))
        return end


def populate(address: int, length: int) -> bool:
    """Takes memory for all pages at once, if the kernel can.

    This is faster than page by page, and does not slow other threads.
    """
    libc, start = ctypes.CDLL(None), ctypes.c_void_p(address)
    return bool(libc.madvise(start, ctypes.c_size_t(length), MADV_POPULATE_WRITE) == 0)


def give_back(fd: int, number: int) -> None:
    """Releases a slot's memory to the system; no mapping of it may still be in use."""
    if _memory_of(fd, number):
        offset = slots.slot_offset(number)
        mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
        ctypes.CDLL(None).fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(SLOT_BYTES))


def _memory_of(fd: int, number: int) -> int:
    """How many bytes of a slot are allocated."""
    allocated, at, end = 0, slots.slot_offset(number), slots.slot_offset(number + 1)
    with contextlib.suppress(OSError):  # nothing is allocated from there on
        while (begin := os.lseek(fd, at, os.SEEK_DATA)) < end:
            at = min(end, os.lseek(fd, begin, os.SEEK_HOLE))
            allocated += at - begin
    return allocated
