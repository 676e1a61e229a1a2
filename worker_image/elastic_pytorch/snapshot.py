"""The newest states of training in memory that outlives the process: what a successor in the same pod goes on from."""

import ctypes
import fcntl
import mmap
import os
import threading
from collections.abc import Callable
from typing import Any

import torch

from elastic_pytorch import snapshot_slots
from elastic_pytorch.log import logger
from elastic_pytorch.payload import PREFIX, TensorKind, read_payload, tensor_offsets
from elastic_pytorch.snapshot_slots import HEADER_BYTES, MAGIC, SLOT_BYTES, SLOTS, Slot
from elastic_pytorch.stamp import Stamp
from elastic_pytorch.tree_format import flatten

MADV_POPULATE_WRITE = 23  # Linux 5.14
SKELETON_ROOM = 1 << 16  # by which a mapping is longer than it must be, for a skeleton that grows
_EMPTY = bytes(8)


class Snapshot:
    """States in a memory file (a memfd), written in turns, so that whenever a writer dies a whole one is there.

    It takes three times the state's size: for the newest, the one that is being flushed to disk, and the one that is being written. With
    `reserve` set to 2, the memory for the second of these is taken only when a flush meets with two commits.

    Args:
        fd: the memory file's descriptor; it is this object's from then on.

    Attributes:
        fd: the same, to be handed to whoever shall keep it.
        reserve: for how many states memory is taken after the first one has been written, so that no later one waits for it.

    Raises:
        ValueError: the descriptor is of something else.
    """

    def __init__(self, fd: int) -> None:
        snapshot_slots.valid_slots(snapshot_slots.read_header(fd))
        self.fd = fd
        self.reserve = SLOTS
        self._mappings: list[_Mapping | None] = [None] * SLOTS
        self._prepared: list[TensorKind] = []  # what the slots' memory has been laid out for

    @classmethod
    def create(cls, name: str) -> "Snapshot":
        """Makes an empty one.

        Args:
            name: for /proc/PID/maps.
        """
        fd = os.memfd_create(name[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, HEADER_BYTES + SLOTS * SLOT_BYTES)
            # Whoever reads it shall not be killed because another process has made it shorter.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            os.pwrite(fd, MAGIC, 0)
            return cls(fd)
        except BaseException:
            os.close(fd)
            raise

    def write(self, stamp: Stamp, tree: Any, check: Callable[[], None] = lambda: None) -> None:
        """Copies a state into a slot that is neither the newest nor being flushed. Takes as long as the memory needs, and never waits.

        Args:
            stamp: of the state.
            tree: the state.
            check: called when all is copied, and before that is the newest state; what it raises is raised here.

        Raises:
            UnsupportedValue: something in the state is no plain data; nothing has been changed.
            ValueError: it is larger than a tebibyte.
        """
        skeleton, tensors = flatten(tree)
        kinds = [(tensor.dtype, tensor.shape) for tensor in tensors]
        slots = self._slots()
        number = self._empty_slot(slots[0].number if slots else None)
        mapping = self._mappings[number]
        if mapping is None or not mapping.fits(kinds, len(skeleton)):
            self._mappings[number] = None  # its memory is given back before the new one is taken
            mapping = self._mappings[number] = _Mapping(self.fd, number, kinds, len(skeleton))
            if kinds != self._prepared:
                self._prepared = kinds
                self._prepare_others(number, kinds, len(skeleton))
        length = mapping.fill(tensors, skeleton)
        check()
        # A call of the system, as the bytes before it are to be seen before it by others, on any processor.
        entry = snapshot_slots.pack_entry(Slot(number, slots[0].sequence + 1 if slots else 1, Stamp(*stamp), length))
        os.pwrite(self.fd, entry, snapshot_slots.entry_offset(number))

    def newest(self) -> Stamp | None:
        """The stamp of the state that was written last; None: there is none."""
        slots = self._slots()
        return slots[0].stamp if slots else None

    def read(self) -> tuple[Stamp, Any]:
        """The state that was written last; its tensors are copies on the CPU.

        Raises:
            LookupError: there is none.
            ValueError: it is of a release that writes another format.
        """
        slots = self._slots()
        if not slots:
            raise LookupError("an empty snapshot")

        def read_into(offset: int, buffer: memoryview) -> None:
            read_exactly(self.fd, slots[0].offset + offset, buffer)

        return slots[0].stamp, read_payload(read_into, slots[0].length)

    def close(self) -> None:
        """Gives the memory back, unless somebody else holds the file too."""
        self._mappings = [None] * SLOTS
        os.close(self.fd)

    def _slots(self) -> list[Slot]:
        return snapshot_slots.valid_slots(snapshot_slots.read_header(self.fd))

    def _empty_slot(self, newest: int | None) -> int:
        """Empties a slot to write to. See `pin_newest` for how this and pinning come to terms."""
        for number in range(SLOTS):
            if number not in (newest, self._pinned()):
                os.pwrite(self.fd, _EMPTY, snapshot_slots.entry_offset(number))
                if self._pinned() != number:
                    return number
        raise AssertionError("three slots, of which one is the newest and one at most is pinned")

    def _pinned(self) -> int | None:
        return snapshot_slots.pinned_slot(snapshot_slots.read_header(self.fd))

    def _prepare_others(self, first: int, kinds: list[TensorKind], skeleton_length: int) -> None:
        """Takes the other slots' memory in a thread."""
        others = [number for number in range(SLOTS) if number != first][: self.reserve - 1]
        self._mappings = [mapping if number == first else None for number, mapping in enumerate(self._mappings)]
        fd = os.dup(self.fd)  # this object may be closed meanwhile

        def prepare() -> None:
            try:
                for number in others:
                    mapping = _Mapping(fd, number, kinds, skeleton_length)
                    if self._mappings[number] is None:
                        self._mappings[number] = mapping
            except OSError as error:
                logger.warning("cannot take memory for more snapshots: %s", error.strerror)
            finally:
                os.close(fd)

        threading.Thread(target=prepare, name="snapshot memory", daemon=True).start()


class _Mapping:
    """A slot's memory, and the tensors that lie in it."""

    def __init__(self, fd: int, number: int, kinds: list[TensorKind], skeleton_length: int) -> None:
        offsets, self._data_end = tensor_offsets(kinds)
        length = self._data_end + skeleton_length + SKELETON_ROOM
        length = -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
        if length > SLOT_BYTES:
            raise ValueError(f"a state of {length} bytes is too large for a snapshot, which holds {SLOT_BYTES}")
        self._map = mmap.mmap(fd, length, offset=snapshot_slots.slot_offset(number))
        self._kinds = kinds
        self._bytes = memoryview(self._map)
        whole = torch.frombuffer(self._map, dtype=torch.uint8)
        # All at once is faster than page by page, and leaves other threads alone. Older kernels refuse, and do it page by page.
        ctypes.CDLL(None).madvise(ctypes.c_void_p(whole.data_ptr()), ctypes.c_size_t(length), MADV_POPULATE_WRITE)
        self._tensors = [
            whole[offset : offset + dtype.itemsize * shape.numel()].view(dtype).view(shape)
            if shape.numel()
            else torch.empty(shape, dtype=dtype)
            for (dtype, shape), offset in zip(kinds, offsets, strict=True)
        ]

    def fits(self, kinds: list[TensorKind], skeleton_length: int) -> bool:
        return kinds == self._kinds and self._data_end + skeleton_length <= len(self._bytes)

    def fill(self, tensors: list[torch.Tensor], skeleton: bytes) -> int:
        """Copies a state into it and returns the state's length."""
        if tensors:
            torch._foreach_copy_(self._tensors, tensors)
        end = self._data_end + len(skeleton)
        self._bytes[self._data_end : end] = skeleton
        self._bytes[: PREFIX.size] = PREFIX.pack(self._data_end - PREFIX.size, len(skeleton))
        return end


def read_exactly(fd: int, offset: int, buffer: memoryview) -> None:
    """Fills a buffer from a file.

    Raises:
        ValueError: the file ends before.
    """
    done = 0
    while done < len(buffer):
        count = os.preadv(fd, [buffer[done : done + (1 << 30)]], offset + done)
        if count == 0:
            raise ValueError("it ends too early")
        done += count
