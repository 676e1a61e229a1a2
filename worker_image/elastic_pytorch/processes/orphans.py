"""Ends workers with their agent, and reaps orphans in process 1 of a container."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Set
from multiprocessing import forkserver, resource_tracker

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Makes the kernel send SIGKILL to this process when its parent dies, or has died.

    A worker without its agent belongs to no round, and may not handle torch's SIGINT.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def forget_resource_tracker() -> None:
    """The agent's resource tracker would unlink memory only when the agent ends."""
    tracker = resource_tracker._resource_tracker
    if tracker._fd is not None:  # type: ignore[attr-defined]
        os.close(tracker._fd)  # type: ignore[attr-defined]
    tracker._fd = tracker._pid = None  # type: ignore[attr-defined]


def reap_orphans(workers: Set[int]) -> None:
    """Reaps dead processes without parents, if this is process 1.

    Torch and multiprocessing reap their own children, whose exit codes they need.
    """
    if os.getpid() != 1:
        return
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if child.si_pid in workers or child.si_pid in _servers():
                return
            os.waitpid(child.si_pid, 0)


def _servers() -> set[int | None]:
    server, tracker = forkserver._forkserver, resource_tracker._resource_tracker
    return {getattr(server, "_forkserver_pid", None), getattr(tracker, "_pid", None)}
