"""Waits for ever, as `--in` says, and handles SIGTERM as `--handler` says."""

import argparse
import ctypes
import hashlib
import os
import signal
import sys
import threading
import time

from events import event

LIBC = ctypes.CDLL(None)
parser = argparse.ArgumentParser()
add = parser.add_argument
add("--in", dest="place", choices=["mutex", "computation", "python", "queue"], required=True)
add("--handler", choices=["save", "save-in-c", "flag", "barrier"], default="save")
add("--until-told", action="store_true", help="first runs Python code until the handler has run")
add("--group", action="store_true", help="all ranks form a group that notices no loss")
add(
    "--first-fails", help="local rank 0 raises once all local ranks have made a file in this folder"
)
arguments = parser.parse_args()
told = threading.Event()


def wait_in_c(seconds: float) -> None:
    """Waits in C without the interpreter; signals do not end it."""
    mutex = ctypes.create_string_buffer(64)
    until = time.time() + seconds
    deadline = (ctypes.c_long * 2)(int(until), int(until % 1 * 10**9))
    LIBC.pthread_mutex_lock(mutex)
    LIBC.pthread_mutex_timedlock(mutex, deadline)


class Handler:
    def __call__(self, number: int, _frame: object) -> None:
        event("told")
        if arguments.handler == "save":
            time.sleep(4)
        elif arguments.handler == "save-in-c":
            wait_in_c(4)
        elif arguments.handler == "barrier":
            dist.barrier()
        else:
            told.set()
            return
        event("saved")
        sys.exit(0)


def hang() -> None:
    if arguments.place == "mutex":
        wait_in_c(10**6)
    elif arguments.place == "computation":
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
    elif arguments.place == "queue":
        threading.Event().wait()
    while True:
        time.sleep(0.01)


signal.signal(signal.SIGTERM, Handler())
if arguments.group:
    import nccl_like  # noqa: F401 - registers it
    import torch.distributed as dist

    dist.init_process_group("nccl_like")
    dist.barrier()
event("start")
if arguments.first_fails:
    with open(os.path.join(arguments.first_fails, os.environ["RANK"]), "w"):  # noqa: PTH118, PTH123
        pass
    if os.environ["LOCAL_RANK"] == "0":
        while len(os.listdir(arguments.first_fails)) < int(os.environ["LOCAL_WORLD_SIZE"]):  # noqa: PTH208
            time.sleep(0.01)
        raise ValueError("boom")
while arguments.until_told and not told.is_set():
    time.sleep(0.01)
hang()
