"""Destroying a process group without a deadlock of torch's own.

Before torch 2.8 the destructor of gloo's group waits for its threads while it holds Python's interpreter lock (pytorch/pytorch#154976). A
thread that has just carried out the last collective, and drops its last reference to a tensor, needs that lock: a script that destroys its
group right after a collective, as nearly all do, then hangs at its end, once in some dozen runs on a busy machine.
"""

import importlib
import threading
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch

FIXED_IN = "2.8"
PAUSE_SECONDS = 0.005
QUIET_PAUSES = 2  # in the first, a thread may have come to wait for the lock just while this one held it to look
MOST_SECONDS = 0.5  # less than a worker may take to leave its group, see settings.REST_SECONDS


def install() -> None:
    """Has `destroy_process_group` of this process, and of those forked from it, first let all threads come to rest."""
    if torch.torch_version.TorchVersion(torch.__version__) >= FIXED_IN:
        return
    # by its name: torch.distributed exports a copy of the function
    for module in map(importlib.import_module, ("torch.distributed.distributed_c10d", "torch.distributed")):
        if (stock := vars(module).get("destroy_process_group")) is not None:
            vars(module)["destroy_process_group"] = _after_rest(stock)


def _after_rest(stock: Callable[..., None]) -> Callable[..., None]:
    @wraps(stock)
    def destroy_process_group(*args: Any, **kwargs: Any) -> None:
        wait_for_rest(MOST_SECONDS)
        stock(*args, **kwargs)

    return destroy_process_group


def wait_for_rest(seconds: float) -> bool:
    """Waits, without the interpreter's lock, until no other thread of this process runs or is about to, but for those of the script's.

    Returns:
        Whether they rest; False: the time is over.
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
    # Gloo's threads are not of Python's making. Those that are may have work that never ends.
    known = {str(thread.native_id) for thread in threading.enumerate()} | {str(threading.get_native_id())}
    for task in Path("/proc/self/task").iterdir():
        try:
            # proc(5): `pid (name) state ...`, where the name may hold anything
            state = (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
        except OSError:  # a thread that has ended
            continue
        if task.name not in known and state in ("R", "D"):  # D: in the kernel, for a page say
            return True
    return False
