"""Shuts gloo's connections down, so that a broken group can be left.

A group is destroyed only when its operations have ended, but two ranks of a group that has lost a
third may wait for each other. Shutting the connections down ends their operations with an error.

gloo does not expose its connections, but sets the same options on each (`Pair::handleConnected` and
`Pair::connect` of gloo/transport/tcp/pair.cc, since 2019): the group's time-out for both sending
and receiving, where other programs poll.
"""

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Callable

TIMEVAL = struct.Struct("ll")


def cut() -> None:
    """Shuts down all of gloo's connections in this process. Safe in any thread."""
    shut_down(_is_of_gloo)


def shut_down(chosen: Callable[[socket.socket], bool]) -> None:
    """Shuts down this process's chosen TCP sockets; OSError of `chosen` means no."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all that is wanted
        with contextlib.suppress(OSError):  # closed meanwhile
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as link:
                    if (
                        link.family in (socket.AF_INET, socket.AF_INET6)
                        and link.type == socket.SOCK_STREAM
                        and chosen(link)
                    ):
                        link.shutdown(socket.SHUT_RDWR)


def _is_of_gloo(link: socket.socket) -> bool:
    # Gloo ends the process if it cannot accept.
    if link.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return False
    sending, receiving = (
        TIMEVAL.unpack(link.getsockopt(socket.SOL_SOCKET, option, TIMEVAL.size))
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO)
    )
    return (
        any(sending)
        and sending == receiving
        and bool(link.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR))
        and bool(link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    )
