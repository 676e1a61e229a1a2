"""Processes that outlive their parents: a worker ends with its agent, and process 1 of a container reaps what others have left."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Set
from multiprocessing import forkserver, resource_tracker

PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Makes the kernel send SIGKILL to this process when its parent dies; if the parent is gone already, ends it at once.

    A worker that continues without its agent would belong to no round. Torch has SIGINT sent to it,
    which a hung worker does not handle.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def forget_resource_tracker() -> None:
    """Forgets the resource tracker that the agent has handed down: it would unlink memory only when the agent ends.

    A process that needs a tracker then starts one of its own.
    """
    tracker = resource_tracker._resource_tracker
    if tracker._fd is not None:  # type: ignore[attr-defined]
        os.close(tracker._fd)  # type: ignore[attr-defined]
    tracker._fd = tracker._pid = None  # type: ignore[attr-defined]


def reap_orphans(workers: Set[int]) -> None:
    """Reaps processes that have died after their parents, if this is process 1.

    Torch and multiprocessing reap their own children: they need the exit codes.
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
