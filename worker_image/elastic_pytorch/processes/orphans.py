"""Reaps orphans, as process 1 of a container must."""

import contextlib
import os
from collections.abc import Set
from multiprocessing import forkserver, resource_tracker


def reap_orphans(workers: Set[int]) -> None:
    """Reaps processes that have died after their parents, if this is process 1.

    Torch and multiprocessing reap their own children: they need the exit codes.

    Args:
        workers: the process ids of the workers.
    """
    if os.getpid() != 1:
        return
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if child.si_pid in workers or child.si_pid in _servers():
                return
            os.waitpid(child.si_pid, 0)


def _servers() -> set[int | None]:
    """Multiprocessing's own children."""
    server, tracker = forkserver._forkserver, resource_tracker._resource_tracker
    return {getattr(server, "_forkserver_pid", None), getattr(tracker, "_pid", None)}
