"""The newest states of training in memory that outlives the process, from which a successor in the same pod continues."""

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
from elastic_pytorch.state_format.payload import TensorKind, read_payload
from elastic_pytorch.state_format.state_encoding import flatten
from elastic_pytorch.state_format.state_version import StateVersion

_EMPTY = bytes(8)
TRIES = 1000  # a pin moves once a flush


class Snapshot:
    """States in a memory file (a memfd), in alternating slots, so that there is a whole one whenever a writer dies.

    It takes twice the state's size: for the newest state, and the one that is being written. If two
    commits come during a flush, it takes three times the size, for the state that is being flushed,
    until the commit after the flush.

    Raises:
        ValueError: the descriptor is not a snapshot's.
    """

    def __init__(self, fd: int, count: int = SLOTS) -> None:
        slots.valid_slots(slots.read_header(fd))
        self.fd = fd
        # A version that is not overwritten, while the newest may be; None: the newest is
        # not.
        self.kept: StateVersion | None = None
        self._count = count
        self._mappings: list[SlotMemory | None] = [None] * SLOTS
        self._prepared: list[TensorKind] = []  # what the slots' memory has been laid out for
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

    def write(
        self, version: StateVersion, tree: Any, check: Callable[[], None] = lambda: None
    ) -> None:
        """Copies a state into a slot that is neither the newest nor being flushed, at the memory's speed; never waits for a flush.

        What `check` raises after the copy is raised here, and the state does not become the newest
        one.

        Raises:
            UnsupportedValue: something in the state is not plain data; nothing has been changed.
            ValueError: it is larger than a tebibyte.
            MemoryError: the container has no room for it.
        """
        self.start(version, tree, check=check)
        self.settle(wait=True)

    def start(
        self,
        version: StateVersion,
        tree: Any,
        copy: Callable[[Tensors, Tensors], Copy] = copy_at_once,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Starts to write a state, which becomes the newest one once `settle` finds the copy complete. See `write`.

        What `check` raises when the copy has begun is raised here, and the state is dropped.
        """
        self.settle(wait=True)
        skeleton, tensors = flatten(tree)
        kinds = [(tensor.dtype, tensor.shape) for tensor in tensors]
        slots = self.slots()
        number = self._empty_slots(slots)
        mapping = self._mappings[number]
        if mapping is None or not mapping.fits(kinds, len(skeleton)):
            self._mappings[number] = None  # its memory is released before the new one is allocated
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
        slot = Slot(number, slots[0].sequence + 1 if slots else 1, StateVersion(*version), length)
        copying = copy(mapping.tensors, tensors)
        try:
            check()
        except BaseException:
            copying.finish()
            raise
        self._copying = slot, copying

    def receive(self, version: StateVersion, length: int) -> "Arriving":
        """Empties a slot for a state that comes from another pod, and is the newest one once it is complete."""
        slots = self.slots()
        number = self._empty_slots(slots)
        self._mappings[number] = None
        return Arriving(
            self.fd,
            Slot(number, slots[0].sequence + 1 if slots else 1, StateVersion(*version), length),
        )

    @property
    def copying(self) -> bool:
        return self._copying is not None

    def settle(self, *, wait: bool) -> bool:
        """Makes the state that was started the newest one if its copy is complete.

        Drops it if the copy is invalid.

        Returns:
            Whether no copy is in progress any more.

        Raises:
            RuntimeError: the GPU has failed.
        """
        if self._copying is None:
            return True
        slot, copy = self._copying
        if not wait and not copy.done():
            return False
        self._copying = None
        if copy.finish():
            # A system call, so that on any processor others see the earlier bytes before this
            # entry.
            os.pwrite(self.fd, slots.pack_entry(slot), slots.entry_offset(slot.number))
        return True

    def newest(self) -> StateVersion | None:
        """Returns the version of the state that was written last; None: there is none."""
        slots = self.slots()
        return slots[0].version if slots else None

    def read(self) -> tuple[StateVersion, Any]:
        """Returns the state that was written last; its tensors are copies on the CPU.

        Raises:
            LookupError: there is none.
            ValueError: it was written by a release with another format.
        """
        slots = self.slots()
        if not slots:
            raise LookupError("an empty snapshot")

        def read_into(offset: int, buffer: memoryview) -> None:
            read_exactly(self.fd, slots[0].offset + offset, buffer)

        return slots[0].version, read_payload(read_into, slots[0].length)

    def close(self) -> None:
        """Releases the memory, unless another process holds the file, too.

        Waits for a copy in progress.
        """
        with contextlib.suppress(RuntimeError):
            self.settle(wait=True)
        self._mappings = [None] * SLOTS
        os.close(self.fd)

    def slots(self) -> list[Slot]:
        """Returns the slots that hold a state, the newest first."""
        return slots.valid_slots(slots.read_header(self.fd))

    def _empty_slots(self, held: list[Slot]) -> int:
        """Empties a slot to write to, and releases the memory of other unused slots.

        See `pin_newest` for how this agrees with pinning.
        """
        spared = next(
            (slot.number for slot in held if slot.version == self.kept),
            held[0].number if held else None,
        )
        # The pin may move from one slot to another while this looks at both.
        empty = next(filter(None, (self._emptied(spared) for _ in range(TRIES))), None)
        if empty is None:
            raise AssertionError("all slots are spared or pinned")
        for number in empty[1:]:
            self._mappings[number] = None
            give_back(self.fd, number)
        return empty[0]

    def _emptied(self, spared: int | None) -> list[int]:
        """Empties what is neither spared nor pinned, the slots that have memory first, and returns what has not been pinned meanwhile."""
        empty: list[int] = []
        for number in sorted(range(self._count), key=lambda number: self._mappings[number] is None):
            if number not in (spared, self._pinned()):
                os.pwrite(self.fd, _EMPTY, slots.entry_offset(number))
                if self._pinned() != number:
                    empty.append(number)
        return empty

    def _pinned(self) -> int | None:
        return slots.pinned_slot(slots.read_header(self.fd))

    def _prepare(self, number: int, kinds: list[TensorKind], skeleton_length: int) -> None:
        """Allocates the memory of the slot that is written to next, in a thread, so that the next commit does not wait for it."""
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
        os.pwrite(self._fd, slots.pack_entry(self._slot), slots.entry_offset(self._slot.number))


def read_exactly(fd: int, offset: int, buffer: memoryview) -> None:
    """Fills a buffer from a file.

    Raises:
        ValueError: the file ends too early.
    """
    done = 0
    while done < len(buffer):
        count = os.preadv(fd, [buffer[done : done + (1 << 30)]], offset + done)
        if count == 0:
            raise ValueError("it ends too early")
        done += count
