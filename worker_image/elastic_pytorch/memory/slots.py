"""The layout of a snapshot: a header with an entry for each of three slots, and the slots.

The writer takes a slot that is neither the newest nor pinned, so it never waits for a flush.
Standard library only, for the checkpoint writer.
"""

import os
import struct
import zlib
from typing import NamedTuple

from elastic_pytorch.state_format.state_version import StateVersion

MAGIC = b"EPTSNAP\x01"
SLOTS = 3  # the newest, one that is being flushed, and one to write to
HEADER_BYTES = 4096
# Between slots. Memory is allocated only for written bytes.
SLOT_BYTES = 1 << 40
PIN_OFFSET = 8
ENTRIES_OFFSET = 64
ENTRY_STRIDE = 64
_ENTRY = struct.Struct("<QQQQ")  # sequence number, generation, step, bytes
_CHECK = struct.Struct("<I")
_PIN = struct.Struct("<I")


class Slot(NamedTuple):
    number: int
    sequence: int  # grows with each state that is written
    version: StateVersion
    length: int  # in bytes

    @property
    def offset(self) -> int:
        return slot_offset(self.number)


def slot_offset(index: int) -> int:
    return HEADER_BYTES + index * SLOT_BYTES


def entry_offset(index: int) -> int:
    """An entry's first 8 bytes are the sequence number, 0 if the slot holds nothing."""
    return ENTRIES_OFFSET + index * ENTRY_STRIDE


def put_entry(fd: int, slot: Slot) -> None:
    """Makes a slot's state the newest, for all processes that have the file."""
    fields = _ENTRY.pack(slot.sequence, slot.version.generation, slot.version.step, slot.length)
    os.pwrite(fd, fields + _CHECK.pack(zlib.crc32(fields)), entry_offset(slot.number))


def valid_slots(fd: int) -> list[Slot]:
    """Returns the slots that hold a state, newest first; raises ValueError for other files."""
    header = os.pread(fd, HEADER_BYTES, 0)
    if len(header) < HEADER_BYTES or header[: len(MAGIC)] != MAGIC:
        raise ValueError("not a snapshot")
    found = []
    for index in range(SLOTS):
        at = entry_offset(index)
        fields = header[at : at + _ENTRY.size]
        sequence, generation, step, length = _ENTRY.unpack(fields)
        (check,) = _CHECK.unpack_from(header, at + _ENTRY.size)
        if sequence and check == zlib.crc32(fields) and length <= SLOT_BYTES:
            found.append(Slot(index, sequence, StateVersion(generation, step), length))
    return sorted(found, key=lambda slot: -slot.sequence)


def pinned_slot(fd: int) -> int | None:
    (pin,) = _PIN.unpack(os.pread(fd, _PIN.size, PIN_OFFSET))
    return pin - 1 if 0 < pin <= SLOTS else None


def pin_newest(fd: int) -> Slot | None:
    """Keeps the newest state from being overwritten until `unpin`; None: there is no state.

    Meanwhile the committing process chooses a slot. Each side announces its intent, then checks the
    other's: this one pins a slot and checks that it holds the same state, the other empties a slot
    and checks that it is not pinned.
    """
    while slots := valid_slots(fd):
        os.pwrite(fd, _PIN.pack(slots[0].number + 1), PIN_OFFSET)
        if still_holds(fd, slots[0]):
            return slots[0]
    return None


def still_holds(fd: int, slot: Slot) -> bool:
    return slot in valid_slots(fd)


def unpin(fd: int) -> None:
    os.pwrite(fd, _PIN.pack(0), PIN_OFFSET)
