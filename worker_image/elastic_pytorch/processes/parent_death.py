"""Dying with one's parent, for processes that must not outlive an agent that was killed."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Has the kernel send this process SIGKILL when its parent dies.

    A worker that trains on without its agent would belong to no round. Torch has it sent SIGINT, which a hung worker does not see.

    Args:
        parent: who is to be the parent; if it is gone already, this process ends here and now.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)
