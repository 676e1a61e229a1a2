"""Has processes die while they write a snapshot; prints as JSON what it holds after each.

Some die at a line of the code, each at a later one; some are killed from outside while they write
one state after the other.
"""

import json
import os
import random
import signal
import sys
import time
from types import FrameType
from typing import Any

import torch
from elastic_pytorch.memory import commit_copies, slot_memory, slots
from elastic_pytorch.memory import snapshot as snapshot_module
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.state_format import payload
from elastic_pytorch.state_format.state_encoding import flatten
from elastic_pytorch.state_format.state_version import StateVersion
from snapshots import read_newest

WATCHED = tuple(
    module.__file__ for module in (snapshot_module, slot_memory, slots, commit_copies, payload)
)


def state(step: int, size: int) -> dict[str, Any]:
    # The sizes change, so that slots are mapped anew at times.
    return {
        "step": step,
        "w": torch.full((size + step % 3,), step),
        "b": [torch.full((7,), float(step)), torch.empty(0)],
    }


def look(snapshot: Snapshot) -> tuple[int, bool]:
    again = Snapshot(os.dup(snapshot.fd))
    version, tree = read_newest(again)
    values = {float(value) for tensor in flatten(tree)[1] for value in tensor.unique()}
    again.close()
    return version.step, tree["step"] == version.step and values == {float(version.step)}


def die_at_line(snapshot: Snapshot, step: int, number: int) -> int:
    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal number
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event == "line":
            number -= 1
            if number == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    pid = os.fork()
    if pid == 0:
        try:
            sys.settrace(trace)
            snapshot.write(StateVersion(1, step), state(step, 1000))
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def lines() -> None:
    snapshot = Snapshot.create("lines")
    snapshot.write(StateVersion(1, 0), state(0, 1000))
    last, number, code = 0, 0, -1
    while code != 0:
        number += 1
        slot = slots.pin_newest(snapshot.fd) if number % 2 else None
        before = os.pread(snapshot.fd, slot.length, slot.offset) if slot else b""
        code = die_at_line(snapshot, last + 1, number)
        step, right = look(snapshot)
        if slot:
            right = right and os.pread(snapshot.fd, slot.length, slot.offset) == before
            slots.unpin(snapshot.fd)
        print(
            json.dumps(
                {"kind": "line", "right": right and step - last in (0, 1), "moved": step - last}
            )
        )
        last = step


def kills() -> None:
    snapshot = Snapshot.create("kills")
    snapshot.write(StateVersion(1, 0), state(0, 200_000))
    last = 0
    for number in range(30):
        written, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            for step in range(last + 1, last + 10**6):
                snapshot.write(StateVersion(1, step), state(step, 200_000))
                if step == last + 1:
                    os.write(told, b".")
            os._exit(1)
        if number % 2:  # on a busy machine, none may write anything in the time below
            os.read(written, 1)
        os.close(written)
        os.close(told)
        time.sleep(random.uniform(0.0, 0.02))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        step, right = look(snapshot)
        print(json.dumps({"kind": "kill", "right": right and step >= last, "moved": step - last}))
        last = step


if __name__ == "__main__":
    torch.set_num_threads(1)  # threads do not survive a fork
    lines()
    kills()
