"""Reads the stacks of several main threads at one moment (see `answers`)."""

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from elastic_pytorch.stopping.answers import ANSWER_HEAD, STACK_HEAD, STACK_SIGNAL
from elastic_pytorch.stopping.observation import memory_path, signal_main_thread
from elastic_pytorch.stopping.places import StackSite, place_of
from elastic_pytorch.stopping.stacks import answering, stat_fields

WAIT_SECONDS = 1.0  # a stopped process never writes its stack
_STATES = {"T": StackSite("stopped"), "t": StackSite("stopped"), "D": StackSite("kernel")}


def find_places(workers: Iterable[int]) -> dict[int, StackSite]:
    """Returns where main threads are, by the worker's process id.

    For a worker without Python, such as a shell script, its first descendant that answers counts.
    """
    workers = list(workers)
    places = {worker: _without_stack(worker) for worker in workers}
    asked = {worker: found for worker in workers if (found := _memory_of(worker)) is not None}
    for pid, *_ in asked.values():
        for _ in range(2):  # a second stack shows that the first one is complete
            with contextlib.suppress(OSError):  # it has just ended
                signal_main_thread(pid, STACK_SIGNAL)
    until = time.monotonic() + WAIT_SECONDS
    while asked:
        late = time.monotonic() >= until
        for worker, (pid, memory, before) in list(asked.items()):
            written = os.pread(memory, os.fstat(memory).st_size - before, before)
            stacks = written.decode(errors="replace").split(STACK_HEAD)
            if len(stacks) > 2:
                places[worker] = place_of(stacks[1].partition(ANSWER_HEAD)[0], _kernel_wait(pid))
            elif late:
                places[worker] = _without_stack(pid)
            if late or len(stacks) > 2:
                os.close(memory)
                del asked[worker]
        if asked:
            time.sleep(0.01)
    return places


def _memory_of(worker: int) -> tuple[int, int, int] | None:
    """The process that answers for a worker, its opened memory file, and the bytes in it."""
    for pid in answering(worker, STACK_SIGNAL):
        with contextlib.suppress(OSError):
            if path := memory_path(pid):
                memory = os.open(path, os.O_RDONLY)
                return pid, memory, os.fstat(memory).st_size
    return None


def _without_stack(pid: int) -> StackSite:
    with contextlib.suppress(OSError, IndexError):
        return _STATES.get(stat_fields(str(pid))[0], StackSite("silent"))
    return StackSite("silent")


def _kernel_wait(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/wchan").read_text(errors="replace")
    return ""
