"""Cutting the connections of gloo's groups, so that a broken one can be left.

Of a group that has lost a member, one rank waits for the next, which waits for it in turn: neither has a connection to the lost one in use,
and a group is only destroyed when its operations have ended. Who leaves cuts its connections: its own operations end with an error then,
and those of its peers, who may not have noticed yet.
"""

import contextlib
import importlib
import os
import socket
import stat
from typing import Any

from torch.distributed import ProcessGroupGloo

Found = tuple[int, int]  # a descriptor, and the number of the socket it stood for

_sockets: set[Found] = set()


class WatchedProcessGroupGloo(ProcessGroupGloo):
    """Torch's group, whose connections are known."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        before = _open_sockets()
        super().__init__(*args, **kwargs)
        _sockets.update(_open_sockets() - before)


def install() -> None:
    """Has all groups that are made from now on in this process, and those forked from it, be watched."""
    module = importlib.import_module(
        "torch.distributed.distributed_c10d"
    )  # by its name, as others hold copies of what is in it
    if vars(module).get("ProcessGroupGloo") is ProcessGroupGloo:
        vars(module)["ProcessGroupGloo"] = WatchedProcessGroupGloo


def cut() -> None:
    """Cuts the connections of all groups that this process has made since the last time."""
    for descriptor, number in _sockets:
        # A descriptor may stand for something else by now.
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_ino == number:
                with socket.socket(fileno=os.dup(descriptor)) as link:
                    # Not what listens: gloo ends the process if it cannot accept.
                    if not link.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        link.shutdown(socket.SHUT_RDWR)
    _sockets.clear()


def _open_sockets() -> set[Found]:
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all that is wanted
        with contextlib.suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found.add((int(name), status.st_ino))
    return found
