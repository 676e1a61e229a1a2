"""Ends a process with its parent: workers must not outlive an agent that was killed."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Makes the kernel send SIGKILL to this process when its parent dies.

    A worker that continues without its agent would belong to no round. Torch has SIGINT sent to it, which a hung worker does not handle.

    Args:
        parent: the expected parent; if it is gone already, this process ends at once.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)
