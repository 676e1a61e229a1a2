"""Avoids a deadlock in torch when a process group is destroyed, and an abort of the process soon after.

The destructor of gloo's group waits for its threads, and may do so while it holds Python's
interpreter lock. A thread that has just carried out the last collective, and drops its last
reference to a tensor, needs that lock: a script that destroys its group right after a collective,
as nearly all do, then hangs at its end: once in a few dozen runs on a busy machine. Torch 2.8 has
fixed it for a group of which Python has the last reference (pytorch/pytorch#154976). It has not for
one to which a DistributedDataParallel refers (seen with 2.10).

A group to which FSDP2's device mesh refers is destructed only when Python finalizes the
interpreter. Until version 3.13, Python then ends a thread that asks for the lock. In a destructor
of C++ that aborts the process: "terminate called without an active exception", SIGABRT
(pytorch/pytorch#190489, seen with 2.15).
"""

import importlib
import threading
import time
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any

PAUSE_SECONDS = 0.005
# In the first, a thread may have begun to wait for the lock while this one held it to check.
QUIET_PAUSES = 2
MAX_SECONDS = 0.5  # less than a worker may take to leave its group, see settings.REST_SECONDS

_before: list[Callable[[], None]] = []


@cache
def install() -> None:
    """Makes `destroy_process_group` of this process, and of those forked from it, first wait until all threads rest."""
    # by its name: torch.distributed exports a copy of the function
    for module in map(
        importlib.import_module, ("torch.distributed.distributed_c10d", "torch.distributed")
    ):
        if (stock := vars(module).get("destroy_process_group")) is not None:
            vars(module)["destroy_process_group"] = _after_rest(stock)


def before_destroy(function: Callable[[], None]) -> None:
    """Registers a function to be called before all process groups of this process are destroyed, while their ranks still meet."""
    _before.append(function)


def _after_rest(stock: Callable[..., None]) -> Callable[..., None]:
    @wraps(stock)
    def destroy_process_group(*args: Any, **kwargs: Any) -> None:
        if not any((*args, *kwargs.values())):  # all groups
            for function in _before:
                function()
        wait_for_rest(MAX_SECONDS)
        stock(*args, **kwargs)

    return destroy_process_group


def wait_for_rest(seconds: float) -> bool:
    """Waits, without the interpreter's lock, until no other thread of this process runs or is about to, except Python's own threads.

    Returns:
        Whether they rest; False: the time was not enough.
    """
    deadline = time.monotonic() + seconds
    quiet = 0
    while quiet < QUIET_PAUSES:
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_SECONDS)
        quiet = 0 if _running() else quiet + 1
    return True


def _running() -> bool:
    # Gloo's threads were not created by Python. Those that were may have work that never ends.
    known = {str(thread.native_id) for thread in threading.enumerate()} | {
        str(threading.get_native_id())
    }
    for task in Path("/proc/self/task").iterdir():
        try:
            # proc(5): `pid (name) state ...`, where the name may hold anything
            state = (
                (task / "stat")
                .read_text(encoding="utf-8", errors="replace")
                .rpartition(")")[2]
                .split()[0]
            )
        except OSError:  # a thread that has ended
            continue
        if task.name not in known and state in ("R", "D"):  # D: in the kernel, for a page say
            return True
    return False
