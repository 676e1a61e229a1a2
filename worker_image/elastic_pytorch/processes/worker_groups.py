"""Kills the process groups of workers such that the shared memory that they have left by name is unlinked.

Python has a resource tracker for that: a process beside the one that has created the memory, which waits until that one and all that it
has forked are gone. It belongs to the same group, so that SIGKILL to the group would end it first.
"""

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

UNLINK_SECONDS = 2.0  # for trackers, from when all others are killed
POLL_SECONDS = 0.005
_TRACKER = b"multiprocessing.resource_tracker"


def kill_groups(groups: Collection[int]) -> None:
    """Sends SIGKILL to all processes of groups, but to their resource trackers only if these take longer than `UNLINK_SECONDS`.

    Returns when the trackers have ended, so that the next workers can create memory of the same names.
    """
    deadline = time.monotonic() + UNLINK_SECONDS
    while _kill_others(groups):
        if time.monotonic() >= deadline:
            break
        time.sleep(POLL_SECONDS)
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


def _kill_others(groups: Collection[int]) -> bool:
    """Kills what is no resource tracker; returns whether there are trackers."""
    trackers = False
    for pid in _members(groups):
        try:
            if _TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes():
                trackers = True
            else:
                os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended
            continue
    return trackers


def _members(groups: Collection[int]) -> list[int]:
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # proc(5): `pid (name) state ppid pgrp ...`, where the name may hold anything
                fields = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                if int(fields[2]) in groups and fields[0] not in "ZX":
                    found.append(int(entry.name))
    return found
