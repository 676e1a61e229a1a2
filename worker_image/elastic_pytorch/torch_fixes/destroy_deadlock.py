"""Avoids a deadlock in torch when a process group is destroyed, and an abort soon after.

The destructor of gloo's group may wait for its threads while it holds Python's interpreter lock,
which a thread needs to drop its last reference to a tensor. Right after a collective, that hangs
once in a few dozen runs. Torch 2.8 has fixed it for a last reference in Python
(pytorch/pytorch#154976), but not in a DistributedDataParallel (seen with 2.10).

A group with a reference in FSDP2's device mesh is destructed only when Python is finalized. Until
version 3.13, Python then ends a thread that asks for the lock, which in a destructor of C++ aborts
the process: "terminate called without an active exception", SIGABRT (pytorch/pytorch#190489, seen
with 2.15).
"""

import importlib
import threading
import time
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any

PAUSE_SECONDS = 0.005
# In the first, a thread may begin to wait for the lock that the check holds.
QUIET_PAUSES = 2
MAX_SECONDS = 0.5  # less than a worker has to leave its group, see settings.REST_SECONDS

_before: list[Callable[[], None]] = []


@cache
def install() -> None:
    """Makes `destroy_process_group`, in this process and its forks, wait for rest."""
    # by name: torch.distributed exports a copy of the function
    for module in map(
        importlib.import_module, ("torch.distributed.distributed_c10d", "torch.distributed")
    ):
        if (stock := vars(module).get("destroy_process_group")) is not None:
            vars(module)["destroy_process_group"] = _after_rest(stock)


def before_destroy(function: Callable[[], None]) -> None:
    """Registers a call before all process groups are destroyed, while their ranks still meet."""
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
    """Waits, without the lock, until no thread runs that Python has not created; False: in vain."""
    deadline = time.monotonic() + seconds
    quiet = 0
    while quiet < QUIET_PAUSES:
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_SECONDS)
        quiet = 0 if _running() else quiet + 1
    return True


def _running() -> bool:
    # Python did not create gloo's threads. The work of Python's own may never end.
    known = {str(thread.native_id) for thread in threading.enumerate()}
    known.add(str(threading.get_native_id()))
    for task in Path("/proc/self/task").iterdir():
        try:
            # proc(5): `pid (name) state ...`, where the name may hold anything
            stat = (task / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # an ended thread
            continue
        state = stat.rpartition(")")[2].split()[0]
        if task.name not in known and state in ("R", "D"):  # D: in the kernel, as for a page
            return True
    return False
