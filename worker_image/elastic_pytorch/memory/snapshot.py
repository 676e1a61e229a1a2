"""The newest states of a training, from which a successor in the same pod continues."""

import contextlib
import fcntl
import mmap
import os
import threading
from collections.abc import Callable
from typing import Any

import torch

from elastic_pytorch.log import logger
from elastic_pytorch.memory import slots
from elastic_pytorch.memory.commit_copies import Copy, Tensors, copy_at_once
from elastic_pytorch.memory.slot_memory import SlotMemory, give_back
from elastic_pytorch.memory.slots import HEADER_BYTES, MAGIC, SLOT_BYTES, SLOTS, Slot
from elastic_pytorch.state_format.payload import TensorKind
from elastic_pytorch.state_format.state_encoding import flatten
from elastic_pytorch.state_format.state_version import StateVersion

_EMPTY = bytes(8)
TRIES = 1000  # a pin moves once in a flush


class Snapshot:
    """States in alternating slots of a memfd, of which one is whole at any time."""

    def __init__(self, fd: int, count: int = SLOTS) -> None:
        slots.valid_slots(fd)
        self.fd = fd
        # The version that is not overwritten, instead of the newest; None: the newest.
        self.kept: StateVersion | None = None
        self._count = count
        self._mappings: list[SlotMemory | None] = [None] * SLOTS
        self._prepared: list[TensorKind] = []  # for which the slots' memory is laid out
        self._copying: tuple[Slot, Copy] | None = None

    @classmethod
    def create(cls, name: str, count: int = SLOTS) -> "Snapshot":
        fd = os.memfd_create(name[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, HEADER_BYTES + SLOTS * SLOT_BYTES)
            # A reader must not be killed because another process has made the file shorter.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            os.pwrite(fd, MAGIC, 0)
            return cls(fd, count)
        except BaseException:
            os.close(fd)
            raise

    def write(self, version: StateVersion, tree: Any) -> None:
        self.start(version, tree)
        self.settle(wait=True)

    def start(
        self,
        version: StateVersion,
        tree: Any,
        copy: Callable[[Tensors, Tensors], Copy] = copy_at_once,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts to write a state, which is the newest once `settle` finds the copy complete.

        If `check` raises after the copy has begun, the state is dropped. A value that is not plain
        data is an `UnsupportedValue`, and changes nothing.
        """
        self.settle(wait=True)
        skeleton, tensors = flatten(tree)
        kinds = [(tensor.dtype, tensor.shape) for tensor in tensors]
        slots = self.slots()
        number = self._empty_slots(slots)
        mapping = self._mappings[number]
        if mapping is None or not mapping.fits(kinds, len(skeleton)):
            self._mappings[number] = None  # releases its memory before the next allocation
            mapping = self._mappings[number] = SlotMemory(self.fd, number, kinds, len(skeleton))
            if kinds != self._prepared:
                self._prepared = kinds
                self._mappings = [mapping if each == number else None for each in range(SLOTS)]
                self._prepare(
                    slots[0].number if slots else (number + 1) % self._count, kinds, len(skeleton)
                )
        if any(tensor.is_cuda for tensor in tensors):
            mapping.lock()
        length = mapping.put_skeleton(skeleton)
        slot = Slot(number, slots[0].sequence + 1 if slots else 1, version, length)
        copying = copy(mapping.tensors, tensors)
        try:
            check()
        except BaseException:
            copying.finish()
            raise
        self._copying = slot, copying

    def receive(self, version: StateVersion, length: int) -> "Arriving":
        """Empties a slot for a state from another pod, which is the newest once it is complete."""
        slots = self.slots()
        number = self._empty_slots(slots)
        self._mappings[number] = None
        slot = Slot(number, slots[0].sequence + 1 if slots else 1, version, length)
        return Arriving(self.fd, slot)

    @property
    def copying(self) -> bool:
        return self._copying is not None

    def settle(self, *, wait: bool) -> bool:
        """Makes the started state the newest if its copy is complete, or drops an invalid one.

        Returns whether no copy is in progress. A GPU that has failed is a RuntimeError.
        """
        if self._copying is None:
            return True
        slot, copy = self._copying
        if not wait and not copy.done():
            return False
        self._copying = None
        if copy.finish():
            # A system call makes others see the earlier bytes before this entry, on any processor.
            slots.put_entry(self.fd, slot)
        return True

    def newest(self) -> StateVersion | None:
        slots = self.slots()
        return slots[0].version if slots else None

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.settle(wait=True)
        self._mappings = [None] * SLOTS
        os.close(self.fd)

    def slots(self) -> list[Slot]:
        return slots.valid_slots(self.fd)

    def _empty_slots(self, held: list[Slot]) -> int:
        """Empties a slot to write to, and releases other unused slots. See `pin_newest`."""
        spared = next(
            (slot.number for slot in held if slot.version == self.kept),
            held[0].number if held else None,
        )
        # The pin may move between slots during this.
        empty = next(filter(None, (self._emptied(spared) for _ in range(TRIES))), None)
        if empty is None:
            raise AssertionError("all slots are spared or pinned")
        for number in empty[1:]:
            self._mappings[number] = None
            give_back(self.fd, number)
        return empty[0]

    def _emptied(self, spared: int | None) -> list[int]:
        """Empties slots, those with memory first; returns those that no flush pinned meanwhile."""
        empty: list[int] = []
        for number in sorted(range(self._count), key=lambda number: self._mappings[number] is None):
            if number not in (spared, self._pinned()):
                os.pwrite(self.fd, _EMPTY, slots.entry_offset(number))
                if self._pinned() != number:
                    empty.append(number)
        return empty

    def _pinned(self) -> int | None:
        return slots.pinned_slot(self.fd)

    def _prepare(self, number: int, kinds: list[TensorKind], skeleton_length: int) -> None:
        """Allocates the next commit's slot in a thread, so that the commit does not wait for it."""
        fd = os.dup(self.fd)  # this object may be closed meanwhile

        def prepare() -> None:
            try:
                mapping = SlotMemory(fd, number, kinds, skeleton_length)
                if self._mappings[number] is None:
                    self._mappings[number] = mapping
            except (OSError, MemoryError) as error:
                logger.warning("cannot take memory for more snapshots: %s", error)
            finally:
                os.close(fd)

        threading.Thread(target=prepare, name="snapshot memory", daemon=True).start()


class Arriving:
    def __init__(self, fd: int, slot: Slot) -> None:
        self._fd, self._slot = fd, slot
        self.memory = torch.frombuffer(
            mmap.mmap(fd, slot.length, offset=slot.offset), dtype=torch.uint8
        )

    def complete(self) -> None:
        slots.put_entry(self._fd, self._slot)
