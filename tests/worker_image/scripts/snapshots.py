"""What a snapshot holds."""

import os
from typing import Any

from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.state_format.payload import read_payload
from elastic_pytorch.state_format.state_version import StateVersion


def read_newest(snapshot: Snapshot) -> tuple[StateVersion, Any]:
    """Returns the newest state; its tensors are copies on the CPU."""
    slots = snapshot.slots()
    if not slots:
        raise LookupError("an empty snapshot")

    def read_into(offset: int, buffer: memoryview) -> None:
        done = 0
        while done < len(buffer):
            at = slots[0].offset + offset + done
            count = os.preadv(snapshot.fd, [buffer[done : done + (1 << 30)]], at)
            if count == 0:
                raise ValueError("it ends too early")
            done += count

    return slots[0].version, read_payload(read_into, slots[0].length)
