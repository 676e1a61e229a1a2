"""The newest states of training in memory that outlives the process: what a successor in the same pod goes on from."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from typing import Any

from elastic_pytorch.log import logger
from elastic_pytorch.memory import slots
from elastic_pytorch.memory.commit_copies import Copy, Tensors, copy_at_once
from elastic_pytorch.memory.slot_memory import SlotMemory, give_back
from elastic_pytorch.memory.slots import HEADER_BYTES, MAGIC, SLOT_BYTES, SLOTS, Slot
from elastic_pytorch.state_format.payload import TensorKind, read_payload
from elastic_pytorch.state_format.state_encoding import flatten
from elastic_pytorch.state_format.state_version import StateVersion

_EMPTY = bytes(8)


class Snapshot:
    """States in a memory file (a memfd), written in turns, so that whenever a writer dies a whole one is there.

    It takes twice the state's size: for the newest, and the one that is being written. A flush that meets with two commits takes it three
    times, for the one that is being flushed, until the commit after its end.

    Args:
        fd: the memory file's descriptor; it is this object's from then on.

    Attributes:
        fd: the same, to be handed to the process that keeps it.

    Raises:
        ValueError: the descriptor is of something else.
    """

    def __init__(self, fd: int) -> None:
        slots.valid_slots(slots.read_header(fd))
        self.fd = fd
        self._mappings: list[SlotMemory | None] = [None] * SLOTS
        self._prepared: list[TensorKind] = []  # what the slots' memory has been laid out for
        self._copying: tuple[Slot, Copy] | None = None

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

    def write(self, version: StateVersion, tree: Any, check: Callable[[], None] = lambda: None) -> None:
        """Copies a state into a slot that is neither the newest nor being flushed. Takes as long as the memory needs, and never waits.

        Args:
            version: of the state.
            tree: the state.
            check: called when all is copied, and before that is the newest state; what it raises is raised here.

        Raises:
            UnsupportedValue: something in the state is no plain data; nothing has been changed.
            ValueError: it is larger than a tebibyte.
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
        """As `write`, but returns when the copy has begun: the state is the newest one once `settle` has found it complete.

        Args:
            version: of the state.
            tree: the state.
            copy: starts to copy tensors, from its second argument to its first.
            check: called when the copy has begun; what it raises is raised here, and the state is dropped.
        """
        self.settle(wait=True)
        skeleton, tensors = flatten(tree)
        kinds = [(tensor.dtype, tensor.shape) for tensor in tensors]
        slots = self._slots()
        number = self._empty_slots(slots[0].number if slots else None)
        mapping = self._mappings[number]
        if mapping is None or not mapping.fits(kinds, len(skeleton)):
            self._mappings[number] = None  # its memory is given back before the new one is taken
            mapping = self._mappings[number] = SlotMemory(self.fd, number, kinds, len(skeleton))
            if kinds != self._prepared:
                self._prepared = kinds
                self._mappings = [mapping if each == number else None for each in range(SLOTS)]
                self._prepare(slots[0].number if slots else (number + 1) % SLOTS, kinds, len(skeleton))
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

    @property
    def copying(self) -> bool:
        """Whether a state has been begun and not been settled."""
        return self._copying is not None

    def settle(self, *, wait: bool) -> bool:
        """Enters the state that was begun, if its copy is complete, as the newest one. Drops it if its copy is not what was to be copied.

        Args:
            wait: until the copy is complete.

        Returns:
            Whether no copy is under way any more.

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
            # A call of the system, as the bytes before it are to be seen before it by others, on any processor.
            os.pwrite(self.fd, slots.pack_entry(slot), slots.entry_offset(slot.number))
        return True

    def newest(self) -> StateVersion | None:
        """The version of the state that was written last; None: there is none."""
        slots = self._slots()
        return slots[0].version if slots else None

    def read(self) -> tuple[StateVersion, Any]:
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

        return slots[0].version, read_payload(read_into, slots[0].length)

    def close(self) -> None:
        """Gives the memory back, unless another process holds the file too. A copy that is under way is ended before."""
        with contextlib.suppress(RuntimeError):
            self.settle(wait=True)
        self._mappings = [None] * SLOTS
        os.close(self.fd)

    def _slots(self) -> list[Slot]:
        return slots.valid_slots(slots.read_header(self.fd))

    def _empty_slots(self, newest: int | None) -> int:
        """Empties a slot to write to, and gives back the memory of others that are of no use.

        See `pin_newest` for how this and pinning come to terms.
        """
        empty: list[int] = []
        for number in sorted(range(SLOTS), key=lambda number: self._mappings[number] is None):
            if number not in (newest, self._pinned()):
                os.pwrite(self.fd, _EMPTY, slots.entry_offset(number))
                if self._pinned() != number:
                    empty.append(number)
        if not empty:
            raise AssertionError("three slots, of which one is the newest and one at most is pinned")
        for number in empty[1:]:
            self._mappings[number] = None
            give_back(self.fd, number)
        return empty[0]

    def _pinned(self) -> int | None:
        return slots.pinned_slot(slots.read_header(self.fd))

    def _prepare(self, number: int, kinds: list[TensorKind], skeleton_length: int) -> None:
        """Takes the memory of the slot that is written to next, in a thread, so that its commit does not wait for it."""
        fd = os.dup(self.fd)  # this object may be closed meanwhile

        def prepare() -> None:
            try:
                mapping = SlotMemory(fd, number, kinds, skeleton_length)
                if self._mappings[number] is None:
                    self._mappings[number] = mapping
            except OSError as error:
                logger.warning("cannot take memory for more snapshots: %s", error.strerror)
            finally:
                os.close(fd)

        threading.Thread(target=prepare, name="snapshot memory", daemon=True).start()


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
