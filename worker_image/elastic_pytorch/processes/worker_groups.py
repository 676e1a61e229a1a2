"""Kills the process groups of workers, and their descendants that have begun a session.

Python's resource tracker, a process of the same group, unlinks their shared memory. It waits until
the creator of the memory and its forks are gone, so SIGKILL to the group would end it first.

A descendant without living ancestors has, in its initial environment, a variable that only the
agent sets.
"""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from elastic_pytorch.stopping.stacks import stat_fields

UNLINK_SECONDS = 2.0  # for trackers, after the kill of all others
POLL_SECONDS = 0.005
_TRACKER = b"multiprocessing.resource_tracker"


class Left(NamedTuple):
    """How to find descendants that have left the groups."""

    variable: str  # `NAME=value` in the environment of the agent's processes
    kept: Collection[int]  # processes that stay, with their descendants


class _Process(NamedTuple):
    parent: int
    group: int


def kill_groups(groups: Collection[int], left: Left | None = None) -> None:
    """Kills all processes of groups, resource trackers last.

    After at most `UNLINK_SECONDS`, the next workers can create memory of the same names.
    """
    deadline = time.monotonic() + UNLINK_SECONDS
    while _kill_others(groups, left):
        if time.monotonic() >= deadline:
            break
        time.sleep(POLL_SECONDS)
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


def _kill_others(groups: Collection[int], left: Left | None) -> bool:
    """Kills all but the resource trackers; returns whether there are any."""
    trackers = False
    processes = _processes()
    for pid, each in processes.items():
        try:
            if each.group not in groups and not (left and _has_left(pid, processes, left)):
                continue
            if _TRACKER in Path(f"/proc/{pid}/cmdline").read_bytes():
                trackers = True
            else:
                os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended
            continue
    return trackers


def _has_left(pid: int, processes: Mapping[int, _Process], left: Left) -> bool:
    ancestor = processes[pid].parent
    if pid in left.kept or pid == os.getpid():
        return False
    while ancestor in processes and ancestor != os.getpid():
        if ancestor in left.kept:
            return False
        ancestor = processes[ancestor].parent
    if ancestor == os.getpid() != 1:
        # Process 1 adopts those whose parents are dead. Another agent has only its own children.
        return False
    return left.variable.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def _processes() -> dict[int, _Process]:
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                state, parent, group, *_ = stat_fields(entry.name)
                if state not in "ZX":
                    found[int(entry.name)] = _Process(int(parent), int(group))
    return found
