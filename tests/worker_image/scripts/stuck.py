"""Rank 0 waits in a collective for the last rank, which sleeps; with `--alone` no rank waits."""

import os
import signal
import sys
import threading
import time

from events import event


def stuck_here() -> None:
    event("stuck")
    time.sleep(600)


signal.signal(signal.SIGUSR1, lambda *_: event("usr1"))
signal.signal(signal.SIGUSR2, lambda *_: event("usr2"))
threading.Thread(target=time.sleep, args=(600,), name="another", daemon=True).start()
if "--alone" in sys.argv:
    stuck_here()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
if int(os.environ["RANK"]) == dist.get_world_size() - 1:
    stuck_here()
event("waits")
dist.all_reduce(torch.ones(1))
